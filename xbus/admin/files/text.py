"""Files of text: their bytes, their lines or pieces of one length, and the entries in these."""

import gzip
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from xbus.admin.files.descriptor import CsvLayout, FixedLayout, Misfit, item_of_columns
from xbus.errors import XbusError
from xbus.files.csv_items import CsvForm, CsvItems, Row, RowReader, ended
from xbus.files.text_lines import NO_TEXT, Entry, LineDecoder, TextDecoder, TextLine, Unreadable, say_nothing
from xbus.json_text import parse_json

STANDARD_INPUT = Path("-")

PACKED = ".gz"

MAGIC = b"\x1f\x8b"
"""The first bytes of what gzip has packed (RFC 1952, 2.3.1). No text begins with them."""


class Source:
    """A file that is being read.

    Args:
        path: the file; ``-`` for the standard input. One that is packed by gzip, or whose name ends in ``.gz``, is
            unpacked.
        most_bytes: unpacked, of a packed file; None for no bound.

    Raises:
        OSError: it can't be read.
        XbusError: while it is read: it unpacks to more (``file_too_large``).

    Attributes:
        name: for people.
        size: in bytes, packed as it is; None where nobody knows.
        file: gives the bytes, unpacked.
    """

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        self._counted: _CountedFile | None = None
        if path == STANDARD_INPUT:
            self.name, self.size = "standard input", None
            self.file = _unpacked(sys.stdin.buffer, is_packed=False)
            return
        self.name, self.size = str(path), path.stat().st_size
        self._counted = _CountedFile(path)
        # FileIO has all that BinaryIO demands but lines.
        buffered = cast(BinaryIO, io.BufferedReader(self._counted))
        self.file = _unpacked(buffered, is_packed=path.suffix.lower() == PACKED, most_bytes=most_bytes)

    @property
    def count(self) -> int:
        """The bytes read so far, packed as they are; 0 of the standard input."""
        return 0 if self._counted is None else self._counted.count

    def close(self) -> None:
        """Close the file; the standard input is not ours."""
        if self._counted is not None:
            self._counted.close()


def _unpacked(file: BinaryIO, *, is_packed: bool, most_bytes: int | None = None) -> BinaryIO:
    if is_packed or (isinstance(file, io.BufferedReader) and file.peek(len(MAGIC)).startswith(MAGIC)):
        packed = cast(BinaryIO, gzip.GzipFile(fileobj=file))
        return packed if most_bytes is None else cast(BinaryIO, _BoundedFile(packed, most_bytes))
    return file


class _BoundedFile:
    """A file that ends in an error where it is too large.

    Args:
        file: gives the bytes.
        most_bytes: so many of them.
    """

    def __init__(self, file: BinaryIO, most_bytes: int) -> None:
        self._file = file
        self._most_bytes = self._left = most_bytes

    def read(self, size: int = -1) -> bytes:
        """Read some bytes.

        Raises:
            XbusError: the file has too many (``file_too_large``).
        """
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise XbusError(
                f"the file unpacks to more than {self._most_bytes:,} bytes",
                "send it in parts, or with xbus emit",
                code="file_too_large",
            )
        return data


class _CountedFile(io.FileIO):
    """A file that knows how much of it has been read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.count = 0
        """In bytes."""

    def readinto(self, buffer: bytearray) -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self.count += count or 0
        return count


MARK = "#xbus# "
"""Begins a remark."""

TITLE = "bad lines of "
"""Begins the first remark. Only a file that begins with it has any: no line of another one is taken for a remark."""

CHUNK_BYTES = 16_384
"""Bytes that are read at once. More are read ahead of what is sent, fewer cost more calls."""


class TextPiece(NamedTuple):
    line: int
    number: int
    offset: int
    text: str


class Text:
    """A file as text.

    Args:
        file: gives the bytes.
        encoding: a name that Python knows; "" for UTF-8. A byte order mark says it, too.
        tell: takes the encoding that a mark shows, where another one is named.
        is_universal: whether any of CR, LF and CRLF ends a line, or LF alone.

    Raises:
        Refused: the encoding does not exist (``unknown_encoding``).
    """

    def __init__(
        self,
        file: BinaryIO,
        encoding: str = "",
        tell: Callable[[str], object] = say_nothing,
        *,
        is_universal: bool = True,
    ) -> None:
        self.decoder = TextDecoder(encoding, tell)
        self._is_universal = is_universal
        # Pipes and unpacked files give what they have at once.
        self._read = cast(Callable[[int], bytes], getattr(file, "read1", file.read))

    def lines(self) -> Iterator[TextLine]:
        """Iterate over each line with its end, without remarks.

        Raises:
            Unreadable: the file is not text in this encoding in a way that leaves no lines to tell apart.
        """
        decoder, has_remarks, is_last = LineDecoder(self.decoder, is_universal=self._is_universal), False, False
        while not is_last:
            data = self._read(CHUNK_BYTES)
            is_last = not data
            for line in decoder.take(data, is_last=is_last):
                has_remarks = line.text.startswith(MARK + TITLE) if line.number == 1 else has_remarks
                if not (has_remarks and line.text.startswith(MARK)):
                    yield line

    def pieces(self, length: int) -> Iterator[TextPiece]:
        """Iterate over pieces of ``length`` characters, of which the last may be shorter, without remarks.

        Raises:
            Unreadable: as ``lines``.
        """
        ahead = _Ahead(self)
        line, number, offset, least = 1, 0, 0, max(length, len(MARK + TITLE))
        has_remarks = ahead.has(least) and ahead.starts_with(MARK + TITLE)
        while ahead.has(least, line):
            if has_remarks and ahead.starts_with(MARK):
                ahead.skip_line()
                line += 1
            else:
                text = ahead.take(length)
                number += 1
                yield TextPiece(line, number, offset, text)
                line += text.count("\n")
                offset += len(text)

    def next_text(self, line: int) -> str | None:
        """Read some text, which may be empty; None at the end.

        Raises:
            Unreadable: the rest is no text.
        """
        if self.decoder.is_broken:
            raise Unreadable(line, f"the rest is {NO_TEXT} {self.decoder.label}")
        data = self._read(CHUNK_BYTES)
        text = self.decoder.take(data, is_last=not data)
        return text if data or text else None


class _Ahead:
    """The text that is read ahead of the present piece.

    Args:
        text: the file.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._read = ""
        self._place = 0

    def has(self, characters: int, line: int = 1) -> bool:
        """Read until there are so many characters, or the file ends; say whether there are any."""
        while len(self._read) - self._place < characters and (more := self._text.next_text(line)) is not None:
            self._read, self._place = self._read[self._place :] + more, 0
        return len(self._read) > self._place

    def starts_with(self, text: str) -> bool:
        """Check what comes next."""
        return self._read.startswith(text, self._place)

    def take(self, characters: int) -> str:
        """Take so many characters, or what there is."""
        begin, self._place = self._place, min(self._place + characters, len(self._read))
        return self._read[begin : self._place]

    def skip_line(self) -> None:
        """Leave out everything up to the end of the line."""
        while (end := self._read.find("\n", self._place)) < 0:
            self._place = len(self._read)
            if not self.has(1):
                return
        self._place = end + 1


class TextReader:
    """The common base of readers of ``Text``: a file with only some of their entries is text too.

    Args:
        text: the file.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._head: list[str] = []
        """Lines that stand before the entries."""

    @property
    def encoding(self) -> str:
        return self._text.decoder.encoding

    def remark(self, sentence: str) -> str:
        return encodable(remark(sentence), self.encoding, "backslashreplace")

    def head(self, sentence: str) -> str:
        return "".join([self.remark(sentence), *self._head])

    def tail(self) -> str:
        return ""


def remark(sentence: str) -> str:
    """Write a sentence as a line that ``Text`` leaves out."""
    return f"{MARK}{' '.join(sentence.split())}\n"


def encodable(text: str, encoding: str, instead: str) -> str:
    """Write the characters that an encoding lacks in another way: names of files may have them, for example.

    Args:
        text: to be encoded.
        encoding: a name that Python knows.
        instead: the error handler that writes them.
    """
    return text.encode(encoding, instead).decode(encoding)


CSV, TSV, JSON_LINES = "csv", "tsv", "jsonl"
KINDS = (CSV, TSV, JSON_LINES)


@dataclass(frozen=True, slots=True)
class Choices:
    """The words of messages for what a person may choose about a file, at the place where the person chooses it.

    Args:
        encoding: behind "name its encoding"; ``{}`` stands for the encoding.
        delimiter: before "says otherwise".
        kind: the next step for a file of an unknown kind.
        empty: the next step for a file without items.
    """

    encoding: str = "with --encoding {}"
    delimiter: str = "--delimiter"
    kind: str = "say what it is with --format, convert it, or name a descriptor"
    empty: str = "see whether it is complete, or send it with --allow-empty"

    def or_encoding(self, encoding: str = "") -> str:
        """Add to a next step that the encoding may be named; ``encoding`` is the one that the bytes show."""
        return f", or name its encoding {' '.join(self.encoding.format(encoding).split())}"


OPTIONS = Choices()
"""The options of commands."""


@dataclass(frozen=True)
class PlainForm:
    """The form of a file, as far as anybody says it beside its name.

    Args:
        kind: one of ``KINDS``; "" for what the name says.
        csv: the form of CSV; without a delimiter the name or the first line says it.
    """

    kind: str = ""
    csv: CsvForm = field(default_factory=CsvForm)

    def complete(self, path: Path, choices: Choices = OPTIONS) -> "PlainForm":
        """Add what the name of a file says.

        Raises:
            XbusError: nothing says the kind (``unknown_format``).
        """
        kind = self.kind or path.name.lower().removesuffix(PACKED).rpartition(".")[2]
        if kind not in KINDS:
            raise XbusError(f"{path} is neither .csv, .tsv nor .jsonl", choices.kind, code="unknown_format")
        delimiter = self.csv.delimiter or ("\t" if kind == TSV else "")
        return PlainForm(kind, replace(self.csv, delimiter=delimiter))


AS_NAMED = PlainForm()
"""Nobody says more than the name."""


class CsvReader(TextReader):
    """Iterate over the rows: each is a map from the names in the first row to texts, or a list without names.

    Args:
        text: the file.
        form: what is said of it.
        tell: takes which delimiter it has, if that is no comma.
    """

    def __init__(self, text: Text, form: CsvForm, tell: Callable[[str], object]) -> None:
        super().__init__(text)
        self._items = CsvItems(form, text.decoder, tell)
        self._head = self._items.head

    def __iter__(self) -> Iterator[Entry]:
        for line in self._text.lines():
            yield from self._items.take(line)
        yield from self._items.finish()


class JsonReader(TextReader):
    """Each line as the JSON value that it is; blank lines are nothing.

    Args:
        text: the file, whose lines end by LF only.
    """

    def __iter__(self) -> Iterator[Entry]:
        for line in self._text.lines():
            if line.text.strip():
                raw = partial(ended, line.text)
                item, fault = self._value(line.text)
                yield Entry(line.number, raw, item, fault)

    def _value(self, text: str) -> tuple[object, str]:
        """Read the value, and its fault if it has one."""
        fault = self._text.decoder.fault(text)
        if fault:
            return None, fault
        try:
            return parse_json(text), ""
        except ValueError as error:
            return None, f"this is not JSON ({error})"


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
