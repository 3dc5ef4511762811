"""Output of commands: aligned columns fitted to a width and facts for people, JSON for programs."""

import json
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest
from textwrap import wrap
from typing import Any, TypeVar

import click

from xbus.clock import SystemClock
from xbus.ending import printable
from xbus.states import TONE_OF, Tone

T = TypeVar("T")

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


Row = Mapping[Any, object]
"""A row of a table: its cells by their columns, each a :class:`Column` or its head. The first row has all columns."""


def rows_of(heads: Sequence[Column | str], cells: Iterable[Sequence[object]]) -> list[Row]:
    """Make rows of a small table, whose cells come in the order of its columns."""
    return [dict(zip(heads, row, strict=True)) for row in cells]


def _of_rows(rows: Sequence[Row], width: int | None, **how: Any) -> Iterator[str]:
    if rows:
        heads = [*rows[0]]
        yield from table(heads, [[row.get(head) for head in heads] for row in rows], width, **how)


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


SHOWN_INDICES = 5

USUAL_WIDTH = 80
"""Characters of a line where nobody says how wide the terminal is, as in a pipe."""

INDENT = 2

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

COLOURS = {Tone.BAD: "red", Tone.BUSY: "yellow", Tone.GOOD: "green"}
"""The colours of states on a terminal."""

_COLOURED = re.compile(rf"\b({'|'.join(TONE_OF)})\b")


STATE = Column("STATE", painted=True)
CAUSE = Column("CAUSE", narrows=20, breaks=True)


def name_column(head: str) -> Column:
    """Make a column of names that people chose, which may be long."""
    return Column(head, narrows=6)


class Form(StrEnum):
    """The forms in which a command may write its answer."""

    USUAL = "usual"
    WIDE = "wide"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Output:
    """The form in which a command writes, and the room that it has.

    Args:
        form: as the options say.
        width: characters of a line of a list; None for any number.
        wraps_at: characters of a line of details; None for any number.
        coloured: whether states get colours.
        now: the moment from which ages count.
    """

    form: Form
    width: int | None = None
    wraps_at: int | None = None
    coloured: bool = False
    now: datetime = field(default_factory=lambda: SystemClock().now())

    @classmethod
    def of(cls, form: Form) -> "Output":
        """Look at the terminal: its width, and whether it may have colours."""
        is_terminal = sys.stdout.isatty()
        coloured = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = None if form is Form.WIDE else _terminal_width(is_terminal)
        # A program that reads details from a pipe looks for whole sentences.
        return cls(form, width or (None if form is Form.WIDE else USUAL_WIDTH), width, coloured)

    @property
    def as_json(self) -> bool:
        return self.form is Form.JSON

    @property
    def is_wide(self) -> bool:
        """True if the command writes whole ids and moments, and cuts nothing."""
        return self.form is Form.WIDE

    def objects(
        self,
        found: Iterable[Any],
        after: Mapping[str, object] | None = None,
        object_of: Callable[[Any], Mapping[str, Any]] = dict,
    ) -> None:
        """Write one line of JSON for each thing.

        Args:
            found: objects, or things of which ``object_of`` makes them.
            after: the filters with which the list goes on, for a program; None where it ends.
        """
        for each in found:
            click.echo(one_json(object_of(each)))

    def table(self, rows: Sequence[Row]) -> Iterator[str]:
        """Write a list: a line for each row, cut where the width does not suffice; nothing without rows."""
        return _of_rows(rows, self.width, narrow=not self.is_wide, paint=self._paint)

    def listing(
        self,
        found: Sequence[T],
        object_of: Callable[[T], Mapping[str, Any]],
        rows: Iterable[Row],
        none: str,
        more: str | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        """Write a list as objects or as a table, or ``none`` where it is empty.

        Args:
            more: goes behind the table; by default the options with which the list goes on.
            after: as of :meth:`objects`.
        """
        if self.as_json:
            self.objects(found, after, object_of)
            return
        click.echo("\n".join(self.table([*rows])) or none)
        if more or after:
            options = " ".join(f"--{name} {value}" for name, value in (after or {}).items())
            click.echo(more or f"There may be more: {options}")

    def detail(self, found: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Write one thing as an object or in lines."""
        click.echo(one_json(found) if self.as_json else "\n".join(lines))

    def paragraph(self, text: str) -> str:
        """Write a sentence, cut into lines at spaces where a terminal is narrow."""
        safe = on_one_line(text)
        return safe if self.wraps_at is None else textwrap.fill(safe, self.wraps_at, break_on_hyphens=False)

    def block(self, title: str, rows: Sequence[Row]) -> Iterator[str]:
        """Write a table under a title behind an empty line, and cut nothing; nothing without rows."""
        if rows:
            width = None if self.wraps_at is None else self.wraps_at - INDENT
            lines = _of_rows(rows, width, wraps=width is not None, narrow=not self.is_wide, paint=self._paint)
            yield ""
            yield title
            yield from (f"{'':{INDENT}}{line}" for line in lines)

    def when(self, at: datetime | None) -> str | None:
        """Write a moment of a list: its age, or the moment itself where the command may be wide."""
        return moment(at) if self.is_wide else age(at, self.now)

    def ahead(self, at: datetime | None) -> str | None:
        """Write a moment to come in a list: the time until then, or the moment itself where the command may be wide."""
        if at is None or self.is_wide:
            return moment(at)
        return age(self.now, at) if at > self.now else "over"

    def _paint(self, text: str) -> str:
        return _COLOURED.sub(_painted, text) if self.coloured else text


@dataclass(frozen=True, slots=True)
class Answer(Output):
    """The answer of a command to a program or a page, which gets it in place of a terminal.

    Args:
        found: the things of a list.
        content: the object for a program.
    """

    form: Form = Form.JSON
    found: list[Any] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)

    def objects(
        self,
        found: Iterable[Any],
        after: Mapping[str, object] | None = None,
        object_of: Callable[[Any], Mapping[str, Any]] = dict,
    ) -> None:
        self.found.extend(found)
        self.content.update(found=[object_of(each) for each in self.found], next=after)

    def detail(self, found: Mapping[str, Any], lines: Iterable[str]) -> None:
        self.content.update(found)


def _painted(word: "re.Match[str]") -> str:
    return click.style(word[0], fg=COLOURS[TONE_OF[word[0]]])


def _terminal_width(is_terminal: bool) -> int | None:
    """Find how wide the terminal is; None where nobody says it, as in a pipe."""
    if (columns := os.environ.get("COLUMNS", "")).isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return (is_terminal and os.get_terminal_size(sys.stdout.fileno()).columns) or None
    except OSError:
        return None


def facts(known: Mapping[str, object]) -> Iterator[str]:
    """Write one line for each existing fact, the values below each other."""
    existing = {name: value for name, value in known.items() if value is not None}
    width = max(map(len, existing), default=0) + 1
    return (f"{name:<{width}} {_text(value)}" for name, value in existing.items())


def moment(at: datetime | None) -> str | None:
    """Write a moment to the second, in UTC."""
    return None if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")


def age(since: datetime | None, now: datetime) -> str | None:
    """Write an age in the largest unit that fits: ``3 d``."""
    if since is None:
        return None
    seconds = max(0, int((now - since).total_seconds()))
    return next((f"{seconds // size} {unit}" for unit, size in UNITS if seconds >= size), "0 s")


def some(indices: Sequence[int] | None) -> str | None:
    """Write the first few indices of items; None without any."""
    if not indices:
        return None
    return ", ".join(map(str, indices[:SHOWN_INDICES])) + (", ..." if len(indices) > SHOWN_INDICES else "")


def counted(number: int, what: str = "item", *, at_least: bool = False) -> str:
    """Write ``1 item``, ``2 items``, ``at least 1,000 items``."""
    return f"{'at least ' if at_least else ''}{number:,} {what}{'' if number == 1 else 's'}"


def one_json(value: Mapping[str, Any]) -> str:
    """Write an object in JSON on one line; ids and moments become text, hashes hexadecimal."""
    return escaped(json.dumps(value, default=plain, ensure_ascii=False))


def escaped(document: str) -> str:
    """Escape in JSON what a terminal would obey, such as marks of direction: a stranger may have written it."""
    if document.isprintable():
        return document
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in document
    )


def plain(value: object) -> str:
    """Convert a value that JSON lacks to text: moments, and bytes to hexadecimal."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
