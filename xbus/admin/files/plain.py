"""Files that need no descriptor: CSV by the names in its first row, and lines of JSON."""

from collections.abc import Callable, Iterator
from functools import partial

from xbus.admin.files.text import Text, TextReader
from xbus.files.csv_items import CsvForm, CsvItems
from xbus.files.csv_rows import ended
from xbus.files.entry import Entry
from xbus.json_text import parse_json


class CsvReader(TextReader):
    """Iterate over the rows: each is a map from the names in the first row to texts, or a list without names.

    Args:
        text: the file.
        form: what is said of it.
        tell: takes which delimiter it has, if that is no comma.
    """

    def __init__(self, text: Text, form: CsvForm, tell: Callable[[str], object]) -> None:
        super().__init__(text)
        self._items = CsvItems(form, text.decoder, lambda found: tell(f"{found}; --delimiter says otherwise"))
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
