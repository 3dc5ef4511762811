"""Scales of axes: round numbers, spans of time and moments, each with its text; pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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
