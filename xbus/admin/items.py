"""Reads items out of files, one after the other, and says which line is wrong where one is."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from xbus.errors import XbusError


class ItemFile:
    """The items of a file: each row of a CSV file as a dictionary by its first line, each line of JSON as its value.

    Args:
        path: a file whose name ends in ``.csv`` or ``.jsonl``.

    Raises:
        XbusError: the file is of another kind (``unknown_format``) or can't be read (``unreadable_file``).
    """

    def __init__(self, path: Path) -> None:
        if path.suffix.lower() not in (".csv", ".jsonl"):
            raise XbusError(f"{path} is neither .csv nor .jsonl", "convert it to one of these", code="unknown_format")
        self.path = path
        self.line = 0
        """The line that was read last, from 1: the last one of the latest item."""
        try:
            self.size = path.stat().st_size
            """In bytes."""
            self._file = path.open("rb")
        except OSError as error:
            raise XbusError(
                f"{path} can't be read ({error.strerror})", "name a readable file", code="unreadable_file"
            ) from error

    def __enter__(self) -> "ItemFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, on_bytes: Callable[[int], object]) -> Iterator[Any]:
        """Each item, in order.

        Args:
            on_bytes: told the length of each line that was read, in bytes.

        Raises:
            XbusError: a line is wrong (``bad_line``).
        """
        lines = self._lines(on_bytes)
        return self._rows(lines) if self.path.suffix.lower() == ".csv" else self._values(lines)

    def refuse(self, reason: str, error: Exception | None = None) -> NoReturn:
        """Say that the line that was read last is wrong.

        Raises:
            XbusError: always (``bad_line``).
        """
        raise XbusError(
            f"{self.path}:{self.line}: {reason}", "correct the line and send the file again", code="bad_line"
        ) from error

    def _rows(self, lines: Iterator[str]) -> Iterator[dict[str, str]]:
        rows = csv.reader(lines, strict=True)
        try:
            names = next(rows, [])
            if len(set(names)) < len(names):
                self.refuse("a column is named twice")
            for row in rows:
                if row and len(row) != len(names):
                    self.refuse(f"{len(row)} fields, but the first line names {len(names)}")
                if row:
                    yield dict(zip(names, row, strict=True))
        except csv.Error as error:
            self.refuse(f"this is not CSV ({error})", error)

    def _values(self, lines: Iterator[str]) -> Iterator[Any]:
        for line in lines:
            if line.strip():
                try:
                    yield json.loads(line, parse_constant=_no_constant)
                except ValueError as error:
                    self.refuse(f"this is not JSON ({error})", error)

    def _lines(self, on_bytes: Callable[[int], object]) -> Iterator[str]:
        for line in self._file:
            self.line += 1
            on_bytes(len(line))
            try:
                yield line.decode("utf-8-sig" if self.line == 1 else "utf-8")
            except UnicodeDecodeError as error:
                self.refuse("this is not text in UTF-8", error)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")
