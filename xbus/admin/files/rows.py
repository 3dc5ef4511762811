"""Rows of CSV with their lines in the file."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xbus.admin.files.text import Text, TextLine, ended


@dataclass(frozen=True, slots=True)
class Row:
    """A row, or its fault.

    Args:
        lines: its lines in the file.
        fields: its fields; none where it has a fault.
        fault: the fault, "" for a good row.
    """

    lines: list[TextLine]
    fields: list[str]
    fault: str = ""

    @property
    def line(self) -> int:
        """Its first line, from 1."""
        return self.lines[0].number

    def raw(self) -> str:
        """Give the row as in the file."""
        return ended("".join(line.text for line in self.lines))


def rows(text: Text, dialect: type[csv.Dialect], lines: Iterable[TextLine] | None = None) -> Iterator[Row]:
    """Iterate over each row, good or bad; a blank line is a row without fields.

    After a bad row it goes on with the next line.

    Args:
        text: the file.
        dialect: of its CSV.
        lines: those of the file, where some of them have been read already.

    Raises:
        Unreadable: the file can't be divided into lines.
    """
    source = _Lines(iter(text.lines() if lines is None else lines))
    reader = csv.reader(source, dialect)
    while True:
        source.taken = []
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _Unfinished) as error:
            yield Row(source.taken, [], f"this is not CSV ({error})")
        else:
            row = Row(source.taken, fields)
            fault = text.fault(row.raw())
            yield Row(source.taken, [], fault) if fault else row


class _Unfinished(Exception):
    """The file ends within a row."""


class _Lines:
    """Gives the csv reader its lines, and notes which ones make a row."""

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
