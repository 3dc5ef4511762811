"""Draws delays as SVG: a map of airlines and months, and beside it what rain and snow add."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from examples.demo_spark.figures import Month

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

NAMES_WIDTH, CELL_WIDTH, CELL_HEIGHT, GAP, PANEL_WIDTH, MARGIN, TOP = 190, 44, 26, 40, 230, 24, 112
PALE, DARK = (255, 247, 236), (153, 52, 4)
"""The colours of no delay and of the longest."""

DRY, WET, INK, FAINT = "#8c8c8c", "#1f6fb4", "#222222", "#d9d9d9"


@dataclass(frozen=True)
class Airline:
    """A line of the picture.

    Attributes:
        name: in words.
        delays: minutes of delay of the mean departure, for each month with departures.
        flights: how many flights left in the year.
        dry: minutes of the mean departure in hours without rain and snow.
        wet: the same in hours with rain or snow; None where none left then.
    """

    name: str
    delays: dict[int, float]
    flights: int
    dry: float
    wet: float | None


def draw(months: Iterable[Month]) -> str:
    """The picture as text; the airline with the most flights is at the top."""
    airlines = sorted(_airlines(months), key=lambda airline: -airline.flights)
    width = 2 * MARGIN + NAMES_WIDTH + 12 * CELL_WIDTH + GAP + PANEL_WIDTH
    height = TOP + len(airlines) * CELL_HEIGHT + 56
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            *_heading(airlines),
            *_map(airlines),
            *_panel(airlines, MARGIN + NAMES_WIDTH + 12 * CELL_WIDTH + GAP),
            "</svg>\n",
        )
    )


def _airlines(months: Iterable[Month]) -> Iterator[Airline]:
    by_name: dict[str, list[Month]] = {}
    for month in months:
        by_name.setdefault(month.airline, []).append(month)
    for name, own in by_name.items():
        left, wet = sum(month.left for month in own), sum(month.wet for month in own)
        minutes, wet_minutes = sum(month.minutes for month in own), sum(month.wet_minutes for month in own)
        delays = {month.month: month.mean_delay for month in own if month.left}
        dry = (minutes - wet_minutes) / (left - wet) if left > wet else 0.0
        yield Airline(name, delays, left, dry, wet_minutes / wet if wet else None)


def _heading(airlines: Sequence[Airline]) -> Iterator[str]:
    flights = sum(airline.flights for airline in airlines)
    yield _text(MARGIN, 34, "Late departures from New York, 2013", size=18, weight="bold")
    yield _text(MARGIN, 56, f"Minutes that the mean departure was late, by airline and month; {flights:,} departures")


def _map(airlines: Sequence[Airline]) -> Iterator[str]:
    longest = max((delay for airline in airlines for delay in airline.delays.values()), default=1.0) or 1.0
    left = MARGIN + NAMES_WIDTH
    for number, month in enumerate(MONTHS):
        yield _text(left + (number + 0.5) * CELL_WIDTH, TOP - 10, month, anchor="middle")
    for line, airline in enumerate(airlines):
        y = TOP + line * CELL_HEIGHT
        yield _text(left - 10, y + 17, airline.name, anchor="end")
        for month_number, delay in airline.delays.items():
            x, share = left + (month_number - 1) * CELL_WIDTH, delay / longest
            yield (
                f'<rect x="{x}" y="{y}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" fill="{_colour(share)}"/>'
            )
            ink = "white" if share > 0.55 else INK
            yield _text(x + CELL_WIDTH / 2 - 1, y + 16, f"{delay:.0f}", anchor="middle", fill=ink, size=11)


def _panel(airlines: Sequence[Airline], left: float) -> Iterator[str]:
    """A dot for dry hours and one for wet hours on each line, on one scale from 0."""
    most = max((max(airline.dry, airline.wet or 0.0) for airline in airlines), default=1.0) or 1.0
    bottom = TOP + len(airlines) * CELL_HEIGHT
    yield _text(left, TOP - 32, "Mean minutes late in hours", size=12)
    yield _text(left, TOP - 10, "● dry", fill=DRY)
    yield _text(left + 52, TOP - 10, "● with rain or snow", fill=WET)
    for minutes in range(0, int(most) + 1, 20):
        x = left + minutes / most * PANEL_WIDTH
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{FAINT}"/>'
        yield _text(x, bottom + 18, str(minutes), anchor="middle", size=11)
    for line, airline in enumerate(airlines):
        y = TOP + (line + 0.5) * CELL_HEIGHT
        dry = left + airline.dry / most * PANEL_WIDTH
        if airline.wet is not None:
            wet = left + airline.wet / most * PANEL_WIDTH
            yield f'<line x1="{dry:.1f}" y1="{y}" x2="{wet:.1f}" y2="{y}" stroke="{FAINT}" stroke-width="4"/>'
            yield f'<circle cx="{wet:.1f}" cy="{y}" r="5" fill="{WET}"/>'
        yield f'<circle cx="{dry:.1f}" cy="{y}" r="5" fill="{DRY}"/>'


def _colour(share: float) -> str:
    return "#" + "".join(f"{round(pale + (dark - pale) * share):02x}" for pale, dark in zip(PALE, DARK, strict=True))


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "normal", fill: str = INK
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{fill}">'
        f"{escape(text)}</text>"
    )
