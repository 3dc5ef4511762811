"""Draws bars as SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.report.numbers import written

NAMES_WIDTH, BARS_WIDTH, NUMBERS_WIDTH, MARGIN, TOP = 230, 420, 90, 20, 56
BAR_HEIGHT, GAP = 20, 6
COLOURS = {"ours": "#1f6fb4", "other": "#8c8c8c", "paler": "#9cc3e4"}
INK = "#222222"


@dataclass(frozen=True)
class Bar:
    """A bar with its name and number.

    Attributes:
        kind: ``ours``, ``paler`` for a second number of ours, or ``other``.
    """

    name: str
    number: float
    kind: str = "ours"


def draw(title: str, subtitle: str, bars: Sequence[Bar]) -> str:
    """Draw a picture of bars one below the other, the longest across the whole width."""
    width = 2 * MARGIN + NAMES_WIDTH + BARS_WIDTH + NUMBERS_WIDTH
    height = TOP + len(bars) * (BAR_HEIGHT + GAP) + MARGIN
    most = max((bar.number for bar in bars), default=0) or 1
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            _text(MARGIN, 24, title, "start", 'font-size="15" font-weight="bold"'),
            _text(MARGIN, 42, subtitle, "start"),
            *(line for number, bar in enumerate(bars) for line in _bar(number, bar, most)),
            "</svg>\n",
        )
    )


def _bar(number: int, bar: Bar, most: float) -> Iterator[str]:
    left, top = MARGIN + NAMES_WIDTH, TOP + number * (BAR_HEIGHT + GAP)
    length, middle = max(1.0, bar.number / most * BARS_WIDTH), TOP + number * (BAR_HEIGHT + GAP) + 14
    yield _text(left - 8, middle, bar.name, "end")
    yield f'<rect x="{left}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" fill="{COLOURS[bar.kind]}"/>'
    yield _text(left + length + 6, middle, written(bar.number), "start")


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}" {style}>{escape(text)}</text>'
