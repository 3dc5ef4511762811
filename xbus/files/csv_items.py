"""Items out of rows of CSV, whose form the first line shows where nobody says it. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from xbus.files.csv_rows import Row, RowReader
from xbus.files.entry import Entry, Unreadable
from xbus.files.text_lines import TextDecoder, TextLine, say_nothing

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

_SEPARATOR_LINE = re.compile(r'[ \t]*"?sep=([^\r\n"])"?(?:(?:\1|[ \t])*|([,;\t|^~])\2*)[\r\n]*', re.IGNORECASE)
"""The line by which a spreadsheet says its delimiter, before the names. Some fill it up to the width of the rows.

A spreadsheet that took the line for a row fills it up with its own delimiter, and separates all rows by that one.
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
        ValueError: it is no single character, or one that ends a row or quotes a field.
    """
    delimiter = "\t" if name.lower() in ("tab", "\\t") else name
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise ValueError(f"the delimiter {delimiter!r:.40} is no single character")
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

    def _entries(self, reader: RowReader, rows: Sequence[Row]) -> Iterator[Entry]:
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
