"""Draws values over time as a line: axes, gaps where nobody looked, and a text for each value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from xbus.monitor.drawings.scales import Unit, moment_ticks, value_ticks

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
