"""Aligned columns for people, fitted to a width."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap

from xbus.ending import printable

GAP = 2

Paint = Callable[[str], str]
"""Adds colours to a text, which takes as much room as before."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: its head.
        narrows: how many characters it keeps at the least where the width does not suffice; 0 for a column that keeps
            its width.
        breaks: whether its texts are sentences, which may go on in further lines. Others are cut or keep their width.
        to_right: whether its texts are aligned to the right; numbers always are.
        wide_only: whether it is left out of narrow tables.
        optional: whether it is left out where no row has anything in it.
        painted: whether its words get colours.
    """

    name: str
    narrows: int = 0
    breaks: bool = False
    to_right: bool = False
    wide_only: bool = False
    optional: bool = False
    painted: bool = False


def table(
    heads: Sequence[Column | str],
    rows: Sequence[Sequence[object]],
    width: int | None = None,
    *,
    wraps: bool = False,
    narrow: bool = False,
    paint: Paint | None = None,
) -> Iterator[str]:
    """Write the lines of a table: two blanks between columns, columns of numbers to the right, None as a dash.

    Args:
        heads: the columns; a text is a column with this head.
        width: how many characters a line may have; None for any number.
        wraps: whether sentences that are too wide go on in further lines, and nothing is cut.
        narrow: whether columns are left out that are for wide tables only.
        paint: colours the painted columns.
    """
    columns = [Column(head) if isinstance(head, str) else head for head in heads]
    shown = [place for place, column in enumerate(columns) if _is_shown(column, [row[place] for row in rows], narrow)]
    columns = [columns[place] for place in shown]
    cells = [[_text(row[place]) for place in shown] for row in rows]
    right = [
        column.to_right or any(isinstance(row[place], int) for row in rows)
        for place, column in zip(shown, columns, strict=True)
    ]
    natural = [max(map(columns_of, texts)) for texts in zip(_heads(columns), *cells, strict=True)]
    widths = _fitted([_floor(column, wraps) for column in columns], natural, width)
    painters = [paint if column.painted else None for column in columns]
    yield _line(_heads(columns), widths, right, [None] * len(columns))
    for row in cells:
        for line in _lines(row, widths, wraps):
            yield _line(line, widths, right, painters)


def _floor(column: Column, wraps: bool) -> int:
    """Give the least width of a column; 0 if it keeps its own."""
    return max(column.narrows, columns_of(column.name)) if column.narrows and (column.breaks or not wraps) else 0


def _is_shown(column: Column, values: Sequence[object], narrow: bool) -> bool:
    if column.wide_only and narrow:
        return False
    return not column.optional or any(value is not None for value in values)


def _heads(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def _fitted(floors: Sequence[int], widths: list[int], width: int | None) -> list[int]:
    """Narrow the widest columns that may be narrowed, until a line fits or none can give way any more.

    Args:
        floors: the least width of each column; 0 for one that keeps its own.
    """
    if width is None:
        return widths
    floors = [min(natural, floor or natural) for floor, natural in zip(floors, widths, strict=True)]
    fitted = [*widths]
    surplus = sum(fitted) + GAP * (len(fitted) - 1) - width
    while surplus > 0:
        room = [fitted[place] - floors[place] > 0 for place in range(len(fitted))]
        if not any(room):
            break
        widest = max((place for place, has_room in enumerate(room) if has_room), key=lambda place: fitted[place])
        others = [fitted[place] for place, has_room in enumerate(room) if has_room and place != widest]
        cut = max(1, min(surplus, fitted[widest] - max([floors[widest], *others])))
        fitted[widest] -= cut
        surplus -= cut
    return fitted


def _lines(row: Sequence[str], widths: Sequence[int], wraps: bool) -> Iterator[Sequence[str]]:
    if not wraps:
        yield [cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        return
    wrapped = [wrap(cell, max(1, width)) for cell, width in zip(row, widths, strict=True)]
    yield from zip_longest(*wrapped, fillvalue="")


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], painters: Sequence[Paint | None]) -> str:
    aligned = []
    for cell, width, to_right, paint in zip(cells, widths, right, painters, strict=True):
        blanks = " " * max(0, width - columns_of(cell))
        text = cell if paint is None else paint(cell)
        aligned.append(blanks + text if to_right else text + blanks)
    return (" " * GAP).join(aligned).rstrip()


def cut(text: str, width: int) -> str:
    """Cut a text that takes more columns of a terminal than ``width``."""
    if columns_of(text) <= width:
        return text
    kept = ""
    for character in text:
        if columns_of(kept + character) > width - 1:
            break
        kept += character
    return kept.rstrip() + "…"


def columns_of(text: str) -> int:
    """Count the columns of a terminal that a text takes: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else on_one_line(str(value))


def on_one_line(text: str) -> str:
    """Write the text on one line, with what a terminal would obey written out: recipients may have written it."""
    return printable(" ".join(text.split()))
