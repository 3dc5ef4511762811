"""A file of items: opens it, chooses its reader, and separates good entries from bad ones."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Protocol

from xbus.admin.files.described import DescribedCsvReader, FixedReader
from xbus.admin.files.descriptor import CsvLayout, Descriptor, XmlLayout
from xbus.admin.files.plain import CsvReader, JsonReader
from xbus.admin.files.plain_form import AS_NAMED, JSON_LINES, PlainForm
from xbus.admin.files.source import Source
from xbus.admin.files.text import Text
from xbus.admin.files.xml_records import XmlReader
from xbus.errors import XbusError
from xbus.files.entry import Entry, Unreadable
from xbus.files.text_lines import say_nothing


class EntryReader(Protocol):
    """Reads the entries of one file, and knows the form of a file with only some of them."""

    @property
    def encoding(self) -> str:
        """The encoding of such a file; known once the first entry has been read."""

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over each entry, good or bad, in order.

        Raises:
            Unreadable: the rest can't be divided into entries.
        """

    def remark(self, sentence: str) -> str:
        """Write a line for people; nobody reads it as an entry."""

    def head(self, sentence: str) -> str:
        """Give the text before the entries, with a remark in it; known once the first one has been read."""

    def tail(self) -> str:
        """Give the text behind the entries."""


class ItemFile:
    """A file whose items are to be sent.

    Args:
        path: the file; ``-`` for the standard input. It may be packed by gzip.
        descriptor: the description of the file; None if its name or ``form`` says how to read it.
        encoding: of its text; by default that of the descriptor or the XML itself, otherwise UTF-8.
        form: what is known of it without a descriptor.
        tell: takes what was found out about its form.
        name: how messages call it; by default its path.

    Raises:
        XbusError: it is of another kind (``unknown_format``), can't be read (``unreadable_file``), or the encoding does
            not exist (``unknown_encoding``).
    """

    def __init__(
        self,
        path: Path,
        descriptor: Descriptor | None = None,
        encoding: str | None = None,
        form: PlainForm = AS_NAMED,
        tell: Callable[[str], object] = say_nothing,
        name: str | None = None,
    ) -> None:
        complete = form.complete(path) if descriptor is None else form
        self._tell = tell
        self._reported = 0
        self.name = name or str(path)
        """For people."""
        try:
            self._source = Source(path)
        except OSError as error:
            self._refuse_file(error)
        self.name, self.size = name or self._source.name, self._source.size
        """In bytes, as it is on the disk; None where nobody knows."""
        try:
            self.reader = (
                self._reader(complete, encoding) if descriptor is None else self._described(descriptor, encoding)
            )
            """Knows the form of the file."""
        except XbusError:
            self._source.close()
            raise

    def __enter__(self) -> "ItemFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def entries(self, on_bytes: Callable[[int], object]) -> Iterator[Entry]:
        """Iterate over each entry, good or bad, in order.

        Args:
            on_bytes: called with the number of bytes read, again and again.

        Raises:
            XbusError: the rest can't be read (``bad_line``, ``unreadable_file``).
        """
        try:
            for entry in self.reader:
                self._report(on_bytes)
                yield entry
            self._report(on_bytes)
        except Unreadable as error:
            other = f", or name its encoding with --encoding {error.encoding}" if error.encoding else ""
            raise XbusError(
                f"{self.name}:{error.line}: {error.reason}",
                f"correct the file and send it again{other}",
                code="bad_line",
            ) from error
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise XbusError(
                f"{self.name} can't be unpacked ({error})", "pack it by gzip anew", code="unreadable_file"
            ) from error
        except OSError as error:
            self._refuse_file(error)

    def _report(self, on_bytes: Callable[[int], object]) -> None:
        if self._source.count > self._reported:
            on_bytes(self._source.count - self._reported)
            self._reported = self._source.count

    def describe(self, entry: Entry, fault: str) -> str:
        """Describe the fault, with file and line."""
        return f"{self.name}:{entry.line}: {fault}"

    def _refuse_file(self, error: OSError) -> NoReturn:
        raise XbusError(
            f"{self.name} can't be read ({error.strerror})", "name a readable file", code="unreadable_file"
        ) from error

    def _reader(self, form: PlainForm, encoding: str | None) -> EntryReader:
        if form.kind == JSON_LINES:
            return JsonReader(self._text(encoding, is_universal=False))
        return CsvReader(self._text(encoding), form.csv, self._told)

    def _described(self, descriptor: Descriptor, encoding: str | None) -> EntryReader:
        layout = descriptor.layout
        if isinstance(layout, XmlLayout):
            return XmlReader(layout, self._source.file, encoding, tell=self._told)
        text = self._text(encoding or descriptor.encoding)
        return DescribedCsvReader(layout, text) if isinstance(layout, CsvLayout) else FixedReader(layout, text)

    def _text(self, encoding: str | None, *, is_universal: bool = True) -> Text:
        return Text(self._source.file, encoding or "", self._told, is_universal=is_universal)

    def _told(self, found: str) -> None:
        self._tell(f"{self.name}: {found}")
