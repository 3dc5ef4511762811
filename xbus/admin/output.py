"""Output of several commands: facts and tables for people, JSON for programs."""

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import click

from xbus.admin.table import Column, on_one_line, table
from xbus.states import TONE_OF, Tone

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
    """

    form: Form
    width: int | None = None
    wraps_at: int | None = None
    coloured: bool = False

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

    def objects(self, found: Iterable[Mapping[str, Any]]) -> None:
        """Write one line of JSON for each object."""
        for each in found:
            click.echo(one_json(each))

    def table(self, heads: Sequence[Column | str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
        """Write a list: a line for each row, cut where the width does not suffice."""
        return table(heads, rows, self.width, narrow=not self.is_wide, paint=self._paint)

    def listing(
        self,
        objects: Iterable[Mapping[str, Any]],
        heads: Sequence[Column | str],
        rows: Sequence[Sequence[object]],
        none: str,
    ) -> None:
        """Write a list as objects or as a table, or ``none`` where it is empty."""
        if self.as_json:
            self.objects(objects)
        else:
            click.echo("\n".join(self.table(heads, rows)) if rows else none)

    def paragraph(self, text: str) -> str:
        """Write a sentence, cut into lines at spaces where a terminal is narrow."""
        safe = on_one_line(text)
        return safe if self.wraps_at is None else textwrap.fill(safe, self.wraps_at, break_on_hyphens=False)

    def block(self, title: str, heads: Sequence[Column | str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
        """Write a table under a title behind an empty line, and cut nothing; nothing without rows."""
        if rows:
            width = None if self.wraps_at is None else self.wraps_at - INDENT
            lines = table(heads, rows, width, wraps=width is not None, narrow=not self.is_wide, paint=self._paint)
            yield ""
            yield title
            yield from (f"{'':{INDENT}}{line}" for line in lines)

    def when(self, at: datetime | None, now: datetime) -> str | None:
        """Write a moment of a list: its age, or the moment itself where the command may be wide."""
        return moment(at) if self.is_wide else age(at, now)

    def ahead(self, at: datetime | None, now: datetime) -> str | None:
        """Write a moment to come in a list: the time until then, or the moment itself where the command may be wide."""
        if at is None or self.is_wide:
            return moment(at)
        return age(now, at) if at > now else "over"

    def _paint(self, text: str) -> str:
        return _COLOURED.sub(_painted, text) if self.coloured else text


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
    width = max(map(len, known)) + 1
    return (f"{name:<{width}} {_fact(value)}" for name, value in known.items() if value is not None)


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
    return escaped(json.dumps(value, default=_plain, ensure_ascii=False))


def escaped(document: str) -> str:
    """Escape in JSON what a terminal would obey, such as marks of direction: a stranger may have written it."""
    if document.isprintable():
        return document
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in document
    )


def _fact(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else on_one_line(str(value))


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
