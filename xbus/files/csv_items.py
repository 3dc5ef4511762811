"""Rows of CSV (RFC 4180) out of lines that come one by one, and items out of rows. Pure.

The library's reader takes no lines one by one, bounds fields for the whole process, and loses what a quote that
nobody closes has swallowed. Rows and fields are those of the library, as a test compares. The first line shows the form
where nobody says it.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from xbus.files.text_lines import LONGEST_LINE, Entry, TextDecoder, TextLine, Unreadable, say_nothing

MOST_FIELDS = 16_384
"""Fields of a row at the most, as many as spreadsheets have. More let a line of separators take 100 times its size."""

QUOTE = '"'

LARGEST_ROW = 2 * LONGEST_LINE
"""Bytes of a row of several lines at the most. More let one quote that nobody closes take the memory of a file."""

_LINE_BYTES = 200
"""Bytes that each line of a row takes beside its text, about."""

_SHORT_CHARACTERS = 65_536
"""Characters of a line that regular expressions may read as a whole. They keep some bytes for each character."""


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


def ended(text: str) -> str:
    """Complete a line with its end, which the last one of a file may lack."""
    return text if text.endswith(("\n", "\r")) else text + "\n"


def _without_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


class _State(Enum):
    """The place in a row, by the names of the library's reader."""

    FIELD_BEGINS = auto()
    IN_FIELD = auto()
    IN_QUOTES = auto()
    QUOTE_IN_QUOTES = auto()
    """The quote ends the quotes, unless another one follows."""
    ESCAPED = auto()
    LINE_END_ESCAPED = auto()
    ESCAPED_IN_QUOTES = auto()


class _BadRow(Exception):
    """A fault by which lines are no row."""


class RowReader:
    """Makes rows of lines.

    A row of several lines that turns out bad may have begun with a quote too many. So only its first line is bad, and
    the others are read anew: no good row is lost in it. Among them a line with a quote within a field is bad, as it is
    rather the end of a text than a row. So is one with an escaped end: the work stays in proportion to the lines.

    Args:
        delimiter: between two fields.
        escape: takes the meaning of the next character; "" for none.
        is_strict: whether text behind a closing quote is a fault. It always is where the quotes span lines.
        largest: bytes of the largest row, counted as ``kept``.

    Attributes:
        columns: the number of fields of each row; None while any number is right.
        whose: where the number of fields is said, for people.
        kept: about the bytes that the row takes that is not complete.
    """

    def __init__(self, delimiter: str, escape: str = "", *, is_strict: bool = True, largest: int = LARGEST_ROW) -> None:
        self.columns: int | None = None
        self.whose = "the first line names"
        self.kept = 0
        self._delimiter = delimiter
        self._escape = escape
        self._is_strict = is_strict
        self._largest = largest
        end = re.escape(delimiter)
        field = rf'(?:"([^"]*+(?:""[^"]*+)*+)"|([^"{end}][^{end}]*+)?+){end}'
        self._field, self._row_of_fields = re.compile(field), re.compile(rf"(?>{field})*+")
        self._tokens = re.compile(rf'[^\r\n"{end}{re.escape(escape)}]+|.', re.DOTALL)
        self._lines: list[TextLine] = []
        self._fields: list[str] = []
        self._parts: list[str] = []
        self._state = _State.FIELD_BEGINS
        self._has_stray_quote = False
        self._before_line = 0
        """Parts of the field that are of earlier lines."""
        self._read_anew_until = 0
        """Lines up to this number are read for the second time."""

    def take(self, line: TextLine) -> Iterable[Row]:
        """Give the rows that are complete with the next line; a blank line is a row without fields.

        The rows behind a bad one are read when they are asked for. A caller that stops there spares the work.
        """
        row = self._row(line)
        if row is None:
            return ()
        return chain((row,), self._rows_anew(row)) if row.fault else (row,)

    def finish(self) -> Iterator[Row]:
        """Iterate over the rows of what is left at the end of the file."""
        while self._lines:
            row = self._bad("this is not CSV (a quoted field is still open where the file ends)")
            rows = self._rows_anew(row)
            yield row
            yield from rows

    def _rows_anew(self, row: Row) -> Iterable[Row]:
        """Leave a bad row its first line, and read all others for the second time."""
        lines = deque(row.lines[1:])
        del row.lines[1:]
        if not lines:
            return ()
        self._read_anew_until = max(self._read_anew_until, lines[-1].number)
        return self._rows_in(lines)

    def _rows_in(self, lines: deque[TextLine]) -> Iterator[Row]:
        while lines:
            found = self._row(lines.popleft())
            if found is not None:
                if found.fault:
                    lines.extendleft(reversed(found.lines[1:]))
                    del found.lines[1:]
                yield found

    def _row(self, line: TextLine) -> Row | None:
        """Read on; give the row that ends here, if one does."""
        text = line.text
        self._lines.append(line)
        self.kept += len(text) + _LINE_BYTES
        try:
            if self._is_on_one_line(line):
                self._fields = self._split(text)
            elif not self._ends_with(text):
                self._check_open_row(line.number)
                return None
            self._check_row(line.number)
        except _BadRow as error:
            return self._bad(str(error))
        row = Row(self._lines, self._fields)
        self._begin()
        return row

    def _bad(self, fault: str) -> Row:
        row = Row(self._lines, [], fault)
        self._begin()
        return row

    def _begin(self) -> None:
        self._lines, self._fields, self._parts = [], [], []
        self._state = _State.FIELD_BEGINS
        self._has_stray_quote = False
        self.kept = 0

    def _check_open_row(self, last_line: int) -> None:
        if self.kept > self._largest:
            raise _BadRow(f"this is not CSV (a quoted field is open for more than {self._largest:,} bytes)")
        # A row that went on here could be bad at its end, and so could the row of each line in it: lines that are read
        # anew would be read as often as there are lines.
        self._check_stray_quote(last_line)
        if self._state is _State.LINE_END_ESCAPED and last_line <= self._read_anew_until:
            raise _BadRow("this is not CSV (the end of the line is escaped, within a bad row of several lines)")

    def _check_row(self, last_line: int) -> None:
        if self._fields and self.columns is not None and len(self._fields) != self.columns:
            raise _BadRow(f"{len(self._fields)} fields, but {self.whose} {self.columns}")
        self._check_stray_quote(last_line)

    def _check_stray_quote(self, last_line: int) -> None:
        if self._has_stray_quote and last_line <= self._read_anew_until:
            raise _BadRow("this is not CSV (a quote within a field, behind a quote that nobody closes)")

    def _is_on_one_line(self, line: TextLine) -> bool:
        """Check whether a line is a well-formed row, in which only quotes around fields mean something."""
        text = line.text
        if len(self._lines) > 1 or (self._escape and self._escape in text):
            return False
        if QUOTE not in text:
            return True
        if len(text) > _SHORT_CHARACTERS or line.number <= self._read_anew_until:
            return False
        return self._row_of_fields.fullmatch(_without_end(text) + self._delimiter) is not None

    def _split(self, text: str) -> list[str]:
        row = _without_end(text)
        if QUOTE in row:
            found = self._field.findall(row + self._delimiter)
            fields = [quoted.replace('""', QUOTE) if quoted else plain for quoted, plain in found]
        else:
            # Nothing is made of a line of separators that is refused.
            fields = row.split(self._delimiter, MOST_FIELDS) if row else []
        if len(fields) > MOST_FIELDS:
            raise self._too_many()
        return fields

    def _too_many(self) -> _BadRow:
        return _BadRow(f"more than {MOST_FIELDS:,} fields")

    def _ends_with(self, text: str) -> bool:
        """Read a line piece by piece; say whether the row ends with it."""
        if text in ("\n", "\r\n", "\r") and len(self._lines) == 1:
            return True
        self._before_line = len(self._parts)
        for found in self._tokens.finditer(text):
            if self._step(found[0]):
                return True
        if self._at_end_of_line():
            return True
        # The parts of a line are small: some of them take much more than their text.
        self._parts[self._before_line :] = ["".join(self._parts[self._before_line :])]
        return False

    def _step(self, part: str) -> bool:
        """Take a run of characters, or one that may mean something; say whether it ends the row."""
        match self._state:
            case _State.IN_QUOTES:
                if part == QUOTE:
                    self._state = _State.QUOTE_IN_QUOTES
                elif part == self._escape:
                    self._state = _State.ESCAPED_IN_QUOTES
                else:
                    self._parts.append(part)
            case _State.ESCAPED_IN_QUOTES:
                self._parts.append(part)
                self._state = _State.IN_QUOTES
            case _State.ESCAPED:
                self._parts.append(part)
                self._state = _State.LINE_END_ESCAPED if part in "\r\n" else _State.IN_FIELD
            case _State.FIELD_BEGINS if part == QUOTE:
                self._state = _State.IN_QUOTES
            case _State.QUOTE_IN_QUOTES if part == QUOTE:
                self._parts.append(QUOTE)
                self._state = _State.IN_QUOTES
            case _State.QUOTE_IN_QUOTES:
                return self._behind_quotes(part)
            case _:
                return self._in_field(part)
        return False

    def _behind_quotes(self, part: str) -> bool:
        if part != self._delimiter and part not in "\r\n":
            if self._is_strict or len(self._lines) > 1:
                raise _BadRow(f"this is not CSV ('{self._delimiter}' expected after '\"')")
            self._parts.append(part)
            self._state = _State.IN_FIELD
            return False
        return self._in_field(part)

    def _in_field(self, part: str) -> bool:
        if part == self._delimiter:
            self._end_field()
            return False
        if part in "\r\n":
            self._end_field()
            return True
        if part == self._escape:
            self._state = _State.ESCAPED
        else:
            self._has_stray_quote = self._has_stray_quote or part == QUOTE
            self._parts.append(part)
            self._state = _State.IN_FIELD
        return False

    def _at_end_of_line(self) -> bool:
        """Go on where a line has no end, or an escaped or quoted one; say whether the row ends."""
        if self._state in (_State.FIELD_BEGINS, _State.IN_FIELD, _State.QUOTE_IN_QUOTES):
            self._end_field()
            return True
        return False

    def _end_field(self) -> None:
        if len(self._fields) == MOST_FIELDS:
            raise self._too_many()
        self._fields.append("".join(self._parts))
        self._parts.clear()
        self._before_line = 0
        self._state = _State.FIELD_BEGINS


DELIMITERS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "vertical bars",
    "^": "carets",
    "~": "tildes",
}
"""The delimiters that are looked for, and their names; the first one where nothing speaks for another."""

MOST_NAME_CHARACTERS = 262_144
"""Characters of all names together. Each item repeats the names, so more let small rows become large items."""

_QUOTED = re.compile(r'"[^"]*"')

_SEPARATOR_LINE = re.compile(r'[ \t]*"?sep=([^\r\n"])"?(?:(?>\1|[ \t])*+|([,;\t|^~])\2*)[\r\n]*', re.IGNORECASE)
"""The line by which a spreadsheet says its delimiter, before the names. Some fill it up to the width of the rows.

A spreadsheet that took the line for a row fills it up with its own delimiter, and separates all rows by that one.
A blank or a tab may be both the delimiter and a filler: nothing of them is tried in two ways.
"""


@dataclass(frozen=True)
class CsvForm:
    """The form of CSV, as far as anybody says it.

    Args:
        delimiter: between two fields; "" for what the first line says or shows.
        has_names: whether the first row names the fields. Without names an item is the list of a row's texts.
    """

    delimiter: str = ""
    has_names: bool = True


def named_delimiter(name: str) -> str:
    """Read a delimiter as people name it: a character, or ``tab`` or ``\\t`` for one that is hard to type.

    Raises:
        ValueError: it is no single character, or a letter, a digit, or one that ends a row or quotes a field.
    """
    delimiter = "\t" if name.lower() in ("tab", "\\t") else name
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise ValueError(f"the delimiter {delimiter!r:.40} is no single character")
    if delimiter.isascii() and delimiter.isalnum():
        # A quoted parameter of HTTP makes t of a backslash and t.
        raise ValueError(f"the delimiter {delimiter!r} is a letter or a digit, and would cut words")
    return delimiter


def delimiter_in(first_line: str, among: Iterable[str] = DELIMITERS) -> str:
    """Find the delimiter of CSV in its first line: the most frequent one outside of quotes."""
    names = _QUOTED.sub("", first_line)
    return max(among, key=names.count)


class LoneColumn:
    """Looks for a delimiter that nobody looks for, in rows of one field. It refuses nothing.

    Attributes:
        marks: the punctuation marks that each row has as often as the first one, with their number.
    """

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self._rows = 0

    def take(self, row: Row) -> None:
        """Look at the next row."""
        text = _QUOTED.sub("", row.raw())
        if not self._rows:
            self.marks = {mark: count for mark, count in Counter(text).items() if _is_mark(mark)}
        elif self.marks:
            self.marks = {mark: count for mark, count in self.marks.items() if text.count(mark) == count}
        self._rows += 1

    def found(self) -> str:
        """Give a sentence for people, "" where the rows show no delimiter."""
        if self._rows < 2 or not self.marks:
            return ""
        return f"its rows have one field, and each has {max(self.marks, key=self.marks.__getitem__)!r} as often"


def _is_mark(character: str) -> bool:
    return not character.isalnum() and character not in " \r\n\"'"


class CsvItems:
    """Makes entries of the lines of a file: of each row a map from the names in the first row to texts.

    Args:
        form: what is said of the file.
        decoder: of the text.
        tell: takes what the first line shows.

    Attributes:
        head: the lines before the items, as in the file.
    """

    def __init__(self, form: CsvForm, decoder: TextDecoder, tell: Callable[[str], object] = say_nothing) -> None:
        self.head: list[str] = []
        self._form = form
        self._decoder = decoder
        self._tell = tell
        self._rows: RowReader | None = None
        self._names: list[str] = []
        self._lone = LoneColumn()
        self._stated: list[str] = []
        """The delimiters of a line that says one: that with which it is filled up, and that which it names."""

    @property
    def kept(self) -> int:
        """Characters of the row that is not complete."""
        return 0 if self._rows is None else self._rows.kept

    def take(self, line: TextLine) -> Iterator[Entry]:
        """Iterate over the entries that are complete with the next line.

        Raises:
            Unreadable: the first row does not name the fields.
        """
        if self._rows is not None:
            yield from self._entries(self._rows, self._rows.take(line))
        elif not line.text.strip("\r\n"):
            self.head.append(line.text)
        elif not self._stated and (found := _SEPARATOR_LINE.fullmatch(line.text)):
            self.head.append(line.text)
            self._stated = [found[2] or found[1], found[1]]
        else:
            delimiter = delimiter_in(line.text, self._stated or DELIMITERS)
            self._rows = RowReader(self._form.delimiter or delimiter)
            if delimiter != "," and not self._form.delimiter:
                self._tell(f"its fields are separated by {DELIMITERS.get(delimiter, repr(delimiter))}")
            yield from self._entries(self._rows, self._rows.take(line))

    def finish(self) -> Iterator[Entry]:
        """Iterate over the entries of what is left at the end of the file.

        Raises:
            Unreadable: as of ``take``.
        """
        if self._rows is not None:
            yield from self._entries(self._rows, self._rows.finish())
            if found := self._lone.found():
                self._tell(found)

    def _entries(self, reader: RowReader, rows: Iterable[Row]) -> Iterator[Entry]:
        for row in rows:
            fault = row.fault or self._text_fault(row)
            if not (self._stated or self._form.delimiter) and len(row.fields) == 1:
                self._lone.take(row)
            if reader.columns is None and self._form.has_names:
                self._names = _names(row, fault)
                self.head.append(row.raw())
                reader.columns = len(self._names)
                continue
            if reader.columns is None and not fault:
                reader.columns, reader.whose = len(row.fields), "the first row has"
            if fault:
                yield Entry(row.line, row.raw, fault=fault)
            elif row.fields:
                item = dict(zip(self._names, row.fields, strict=True)) if self._form.has_names else row.fields
                yield Entry(row.line, row.raw, item)

    def _text_fault(self, row: Row) -> str:
        return next(filter(None, (self._decoder.fault(line.text) for line in row.lines)), "")


def _names(row: Row, fault: str) -> list[str]:
    """Read the names of the fields.

    Raises:
        Unreadable: they are not names of fields.
    """
    names = row.fields
    empty = [str(number) for number, name in enumerate(names, 1) if not name]
    if len(empty) > 1:
        fault = f"the columns {', '.join(empty[:-1])} and {empty[-1]} have no name"
    elif twice := next((name for name, times in Counter(names).items() if times > 1), None):
        fault = f'a column is named twice: "{twice:.80}"'
    elif sum(map(len, names)) > MOST_NAME_CHARACTERS:
        fault = f"the names of the columns have more than {MOST_NAME_CHARACTERS:,} characters"
    if fault:
        raise Unreadable(row.line, fault)
    return names
