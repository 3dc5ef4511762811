"""A file of items: opens it, chooses its reader, and separates good entries from bad ones."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from xbus.admin.files.described import DescribedCsvReader, FixedReader
from xbus.admin.files.descriptor import CsvLayout, Descriptor, FixedLayout
from xbus.admin.files.entry import Entry, EntryReader, Unreadable
from xbus.admin.files.plain import CsvReader, JsonReader
from xbus.admin.files.plain_form import AS_NAMED, JSON_LINES, PlainForm
from xbus.admin.files.source import Source
from xbus.admin.files.text import DEFAULT_ENCODING, Text
from xbus.admin.files.xml_records import XmlReader
from xbus.errors import XbusError


def say_nothing(sentence: str) -> None:
    """Keep a sentence from whoever does not want it."""


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
            raise XbusError(
                f"{self.name}:{error.line}: {error.reason}", "correct the file and send it again", code="bad_line"
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
        text_encoding = encoding or DEFAULT_ENCODING
        if form.kind == JSON_LINES:
            return JsonReader(Text(self._source.file, text_encoding, "\n"))
        text = Text(self._source.file, text_encoding)
        return CsvReader(text, form.delimiter, lambda found: self._tell(f"{self.name}: {found}"))

    def _described(self, descriptor: Descriptor, encoding: str | None) -> EntryReader:
        layout = descriptor.layout
        text_encoding = encoding or descriptor.encoding or DEFAULT_ENCODING
        if isinstance(layout, CsvLayout):
            return DescribedCsvReader(layout, Text(self._source.file, text_encoding))
        if isinstance(layout, FixedLayout):
            return FixedReader(layout, Text(self._source.file, text_encoding))
        return XmlReader(layout, self._source.file, encoding)
