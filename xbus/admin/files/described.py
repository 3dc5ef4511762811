"""Files of columns by a descriptor: CSV, and records of one length."""

import csv
from collections.abc import Iterator
from functools import partial

from xbus.admin.files.casting import Misfit
from xbus.admin.files.descriptor import CsvLayout, FixedLayout, item_of_columns
from xbus.admin.files.entry import Entry
from xbus.admin.files.rows import rows
from xbus.admin.files.text import Text, TextReader, ended


class DescribedCsvReader(TextReader):
    """Each row from ``first_row`` on as its columns say.

    Args:
        layout: what the file looks like.
        text: the file.
    """

    def __init__(self, layout: CsvLayout, text: Text) -> None:
        super().__init__(text)
        self._layout = layout

    def __iter__(self) -> Iterator[Entry]:
        columns = self._layout.columns
        for number, row in enumerate(rows(self._text, _dialect(self._layout.delimiter)), 1):
            if number < self._layout.first_row:
                self._head.append(row.raw())
            elif row.fault:
                yield Entry(row.line, row.raw, fault=row.fault)
            elif len(row.fields) != len(columns):
                fault = f"{len(row.fields)} fields, but the descriptor has {len(columns)}"
                yield Entry(row.line, row.raw, fault=fault)
            else:
                try:
                    yield Entry(row.line, row.raw, item_of_columns(columns, row.fields))
                except Misfit as misfit:
                    yield Entry(row.line, row.raw, fault=misfit.reason)


def _dialect(delimiter: str) -> type[csv.Dialect]:
    """Make the dialect of pyjon.descriptors: text behind a closing quote belongs to the field."""
    return type("_Dialect", (csv.excel,), {"delimiter": delimiter, "escapechar": "\\"})


class FixedReader(TextReader):
    """Each record from ``first_row`` on, cut at the widths of its fields.

    Args:
        layout: what the file looks like.
        text: the file.
    """

    def __init__(self, layout: FixedLayout, text: Text) -> None:
        super().__init__(text)
        self._layout = layout

    def __iter__(self) -> Iterator[Entry]:
        return self._lines() if self._layout.piece is None else self._pieces(self._layout.piece)

    def _lines(self) -> Iterator[Entry]:
        for number, line in enumerate(self._text.lines(), 1):
            if number < self._layout.first_row:
                self._head.append(line.text)
            else:
                yield self._entry(line.number, line.text, ended(line.text))

    def _pieces(self, length: int) -> Iterator[Entry]:
        for piece in self._text.pieces(length):
            place = f"record {piece.number:,} at character {piece.offset:,}: "
            if len(piece.text) < length:
                # Line ends behind the last record are no record.
                if piece.text.strip("\r\n"):
                    fault = f"{place}the file ends after {len(piece.text):,} of {length:,} characters"
                    yield Entry(piece.line, partial(str, piece.text), fault=fault)
            elif piece.number < self._layout.first_row:
                self._head.append(piece.text)
            else:
                yield self._entry(piece.line, piece.text, piece.text, place)

    def _entry(self, line: int, text: str, whole: str, place: str = "") -> Entry:
        raw = partial(str, whole)
        record = text.rstrip("\r\n")
        fault = self._text.fault(record)
        if not fault and len(record) != self._layout.length:
            fault = f"{len(record)} characters, but the descriptor has {self._layout.length}"
        if fault:
            return Entry(line, raw, fault=place + fault)
        try:
            return Entry(line, raw, item_of_columns(self._layout.columns, self._cut(record)))
        except Misfit as misfit:
            return Entry(line, raw, fault=place + misfit.reason)

    def _cut(self, record: str) -> list[str]:
        fields, begin = [], 0
        for width in self._layout.widths:
            fields.append(record[begin : begin + width])
            begin += width
        return fields
