"""Files that need no descriptor: CSV by the names in its first row, and lines of JSON."""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice

from xbus.admin.files.entry import Entry, Unreadable
from xbus.admin.files.plain_form import DELIMITERS, delimiter_in
from xbus.admin.files.rows import Row, rows
from xbus.admin.files.text import Text, TextReader, ended
from xbus.admin.json_text import parse_json
from xbus.rpc.codec import Value


class CsvReader(TextReader):
    """Each row as a map from the names in the first row to texts.

    Args:
        text: the file.
        delimiter: between two fields; "" for the one that the first line shows.
        tell: takes which delimiter that is, if it is no comma.
    """

    def __init__(self, text: Text, delimiter: str, tell: Callable[[str], object]) -> None:
        super().__init__(text)
        self._delimiter = delimiter
        self._tell = tell

    def __iter__(self) -> Iterator[Entry]:
        lines = self._text.lines()
        first = list(islice(lines, 1))
        delimiter = self._delimiter or self._found_in("".join(line.text for line in first))
        found = rows(self._text, _strict(delimiter), chain(first, lines))
        names = self._names(next(found, None))
        for row in found:
            if row.fault:
                yield Entry(row.line, row.raw, fault=row.fault)
            elif row.fields and len(row.fields) != len(names):
                fault = f"{len(row.fields)} fields, but the first line names {len(names)}"
                yield Entry(row.line, row.raw, fault=fault)
            elif row.fields:
                yield Entry(row.line, row.raw, dict(zip(names, row.fields, strict=True)))

    def _found_in(self, first_line: str) -> str:
        delimiter = delimiter_in(first_line)
        if delimiter != ",":
            self._tell(f"its fields are separated by {DELIMITERS[delimiter]}; --delimiter says otherwise")
        return delimiter

    def _names(self, first: Row | None) -> list[str]:
        if first is None:
            return []
        if first.fault:
            raise Unreadable(first.line, first.fault)
        if len(set(first.fields)) < len(first.fields):
            raise Unreadable(first.line, "a column is named twice")
        self._head.append(first.raw())
        return first.fields


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

    def _value(self, text: str) -> tuple[Value, str]:
        """Read the value, and its fault if it has one."""
        fault = self._text.fault(text)
        if fault:
            return None, fault
        try:
            return parse_json(text), ""
        except ValueError as error:
            return None, f"this is not JSON ({error})"


def _strict(delimiter: str) -> type[csv.Dialect]:
    return type("_Strict", (csv.excel,), {"delimiter": delimiter, "strict": True})
