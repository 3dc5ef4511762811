"""Rows of CSV with the lines that they stand in."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from xbus.admin.files.text import Text, TextLine, ended


@dataclass(frozen=True, slots=True)
class Row:
    """A row, or what is wrong with it.

    Args:
        lines: the lines that it stands in.
        fields: its fields; none where it has a fault.
        fault: what is wrong, "" for a good row.
    """

    lines: list[TextLine]
    fields: list[str]
    fault: str = ""

    @property
    def line(self) -> int:
        """Where it begins, from 1."""
        return self.lines[0].number

    def raw(self) -> str:
        """The row as it stands in the file."""
        return ended("".join(line.text for line in self.lines))


def rows(text: Text, dialect: type[csv.Dialect]) -> Iterator[Row]:
    """Each row, good or bad; a blank line is a row without fields. Behind a bad row it goes on with the next line.

    Raises:
        Unreadable: the lines can't be told apart.
    """
    lines = _Lines(text.lines())
    reader = csv.reader(lines, dialect)
    while True:
        lines.taken = []
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _Unfinished) as error:
            yield Row(lines.taken, [], f"this is not CSV ({error})")
        else:
            row = Row(lines.taken, fields)
            fault = text.fault(row.raw())
            yield Row(lines.taken, [], fault) if fault else row


class _Unfinished(Exception):
    """The file ends within a row."""


class _Lines:
    """What the csv reader pulls its lines from; notes which ones make a row."""

    def __init__(self, lines: Iterator[TextLine]) -> None:
        self._lines = lines
        self.taken: list[TextLine] = []

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        for line in self._lines:
            self.taken.append(line)
            return line.text
        if self.taken:
            raise _Unfinished("a quoted field is still open where the file ends")
        raise StopIteration
