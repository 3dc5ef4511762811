"""Files of columns by a descriptor: CSV, and records of one length."""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from xbus.admin.files.casting import Misfit
from xbus.admin.files.descriptor import CsvLayout, FixedLayout, item_of_columns
from xbus.admin.files.text import Text, TextReader
from xbus.files.csv_rows import Row, RowReader, ended
from xbus.files.entry import Entry


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
        # The dialect of pyjon.descriptors: text behind a closing quote belongs to the field.
        reader = RowReader(self._layout.delimiter, "\\", is_strict=False)
        reader.whose = "the descriptor has"
        rows = self._rows(reader)
        self._head += [row.raw() for row in islice(rows, self._layout.first_row - 1)]
        reader.columns = len(self._layout.columns)
        yield from map(self._entry, rows)

    def _rows(self, reader: RowReader) -> Iterator[Row]:
        for line in self._text.lines():
            yield from reader.take(line)
        yield from reader.finish()

    def _entry(self, row: Row) -> Entry:
        columns = self._layout.columns
        fault = row.fault or self._text.decoder.fault(row.raw())
        if not fault and len(row.fields) != len(columns):
            fault = f"{len(row.fields)} fields, but the descriptor has {len(columns)}"
        if fault:
            return Entry(row.line, row.raw, fault=fault)
        try:
            return Entry(row.line, row.raw, item_of_columns(columns, row.fields))
        except Misfit as misfit:
            return Entry(row.line, row.raw, fault=misfit.reason)


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
        fault = self._text.decoder.fault(record)
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
