"""Draws values over time as a line: axes of round numbers, gaps where nobody looked, texts for values; pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

SPANS = (
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR),
    *(DAY, 2 * DAY, 5 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY, 730 * DAY, 1825 * DAY, 3650 * DAY),
)
"""Steps of an axis of time, in seconds, that people read well."""

LEAST = 1e-9
"""Smaller values count as nothing."""

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Unit:
    """A kind of values.

    Args:
        step_of: gives the step of an axis for the greatest value and a number of steps.
        write: writes a value with its unit.
    """

    step_of: Callable[[float, int], float]
    write: Callable[[float], str]


def round_step(greatest: float, steps: int) -> float:
    """Choose 1, 2 or 5 times a power of ten, so that about so many steps reach the greatest value."""
    if greatest < LEAST:
        return 1.0
    rough = greatest / steps
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def span_step(greatest: float, steps: int) -> float:
    """Choose a step of time in the same way, in seconds."""
    return next((span for span in SPANS if span * steps >= greatest), SPANS[-1])


def number_text(value: float) -> str:
    """Write a number short: ``1.2k``."""
    for size, prefix in PREFIXES:
        if value >= size * 0.9995:
            return f"{_digits(value / size)}{prefix}"
    return _digits(value)


def span_text(seconds: float) -> str:
    """Write a span of time in its largest unit: ``3 min``."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds)} s"


def _short(value: float) -> str:
    """Write about two digits that count."""
    return f"{value:.{0 if value >= 10 else 1}f}".removesuffix(".0")


def _digits(value: float) -> str:
    """Write about three digits that count, without zeros at the end."""
    text = f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def rate_of(what: str) -> Unit:
    """Make the unit of things for each second."""
    return Unit(round_step, lambda value: f"{number_text(value)} {what}/s")


NUMBER = Unit(round_step, number_text)
SECONDS = Unit(span_step, span_text)


def value_ticks(greatest: float, unit: Unit, steps: int = 4) -> list[float]:
    """Choose the values that an axis from 0 shows; the last one is not below the greatest value."""
    step = unit.step_of(greatest, steps)
    return [number * step for number in range(max(1, math.ceil(greatest / step * 0.9999)) + 1)]


def moment_ticks(since: datetime, until: datetime, most: int = 6) -> Sequence[tuple[datetime, str]]:
    """Choose moments of an axis of time, each with its text, in UTC."""
    seconds = (until - since).total_seconds()
    step = next(span for span in SPANS if span >= MINUTE and span * most >= seconds)
    first = math.ceil(since.timestamp() / step) * step
    moments = [datetime.fromtimestamp(first, UTC) + timedelta(seconds=number * step) for number in range(most + 1)]
    form = "%H:%M" if step < DAY and seconds <= 2 * DAY else "%b %d" if step >= DAY else "%b %d %H:%M"
    return [(moment, moment.strftime(form)) for moment in moments if moment <= until]


WIDTH, HEIGHT = 440.0, 180.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 20.0, 14.0, 24.0
"""Pixels around the field of the lines, for the texts of the axes."""


class PlotValue(NamedTuple):
    """A value of a span of time; None where nobody looked.

    Args:
        about: further words about it.
    """

    began_at: datetime
    ended_at: datetime
    value: float | None
    about: str = ""


class Tick(NamedTuple):
    """A place on an axis, in pixels, with its text."""

    at: float
    text: str


class Spot(NamedTuple):
    """A value in its place.

    Args:
        left: where its part of the field begins; ``width`` is that of the part.
        is_late: whether its text stands on the left of it, as there is no room on the right.
        about: moment and value.
    """

    left: float
    width: float
    x: float
    y: float
    is_late: bool
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class LinePlot:
    """A plot with all places, in pixels.

    Args:
        name: names it among the plots of a page.
        lines: paths of the line; the line ends at each gap.
        areas: paths of the areas below.
        summary: the plot in a sentence.
    """

    name: str
    title: str
    moments: Sequence[Tick]
    values: Sequence[Tick]
    lines: Sequence[str]
    areas: Sequence[str]
    spots: Sequence[Spot]
    summary: str
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def plot(name: str, title: str, unit: Unit, values: Sequence[PlotValue], since: datetime, until: datetime) -> LinePlot:
    """Draw values.

    Args:
        name: letters that name the plot among others.
        values: in the order of time, none overlaps the next.
        since: where the axis begins.
        until: where it ends.
    """
    known = [each.value for each in values if each.value is not None]
    greatest = max(known, default=0.0)
    ticks = value_ticks(greatest, unit)
    field_width, field_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    seconds = (until - since).total_seconds()

    def x_of(at: datetime) -> float:
        share = (at - since).total_seconds() / seconds
        return LEFT + field_width * min(max(share, 0.0), 1.0)

    def y_of(value: float) -> float:
        return TOP + field_height * (1 - value / ticks[-1])

    spots = []
    runs: list[list[tuple[float, float]]] = []
    for is_known, group in groupby(values, lambda each: each.value is not None):
        if is_known:
            runs.append([])
        for each in group:
            if each.value is None:
                continue
            left, right = x_of(each.began_at), x_of(each.ended_at)
            x, y = (left + right) / 2, y_of(each.value)
            runs[-1].append((x, y))
            text = unit.write(each.value)
            about = f"{each.began_at:%Y-%m-%d %H:%M:%S}Z: {text}{', ' if each.about else ''}{each.about}"
            spots.append(Spot(left, right - left, x, y, x > WIDTH / 2, text, about))
    return LinePlot(
        name=name,
        title=title,
        moments=[Tick(x_of(at), text) for at, text in moment_ticks(since, until)],
        values=[Tick(y_of(value), unit.write(value)) for value in ticks],
        lines=[_line(run) for run in runs],
        areas=[*_areas(runs)],
        spots=spots,
        summary=_summary(values, unit, greatest),
    )


def _line(run: Sequence[tuple[float, float]]) -> str:
    """The path of a line; a lone value is a short one."""
    if len(run) == 1:
        ((x, y),) = run
        return f"M{x - 1.5:.1f} {y:.1f}H{x + 1.5:.1f}"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run)


def _areas(runs: Sequence[Sequence[tuple[float, float]]]) -> Iterator[str]:
    ground = HEIGHT - BOTTOM
    for run in runs:
        if len(run) > 1:
            yield f"{_line(run)}V{ground:.1f}H{run[0][0]:.1f}Z"


def _summary(values: Sequence[PlotValue], unit: Unit, greatest: float) -> str:
    known = [each for each in values if each.value is not None]
    if not known:
        return "No monitor ran in this time."
    last = known[-1]
    assert last.value is not None, "it is known"
    most = next(each for each in known if each.value == greatest)
    return (
        f"Last {unit.write(last.value)} at {last.began_at:%Y-%m-%d %H:%M}Z; "
        f"at most {unit.write(greatest)} at {most.began_at:%Y-%m-%d %H:%M}Z."
    )
