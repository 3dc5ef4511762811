"""A file of items: opens it, chooses its reader, and separates good entries from bad ones."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from xbus.admin.files.described import DescribedCsvReader, FixedReader
from xbus.admin.files.descriptor import CsvLayout, Descriptor, FixedLayout
from xbus.admin.files.entry import Entry, EntryReader, Unreadable
from xbus.admin.files.plain import CsvReader, JsonReader
from xbus.admin.files.text import DEFAULT_ENCODING, Text
from xbus.admin.files.xml_records import XmlReader
from xbus.errors import XbusError


class ItemFile:
    """A file whose items are to be sent.

    Args:
        path: the file; without a descriptor its name ends in ``.csv`` or ``.jsonl``.
        descriptor: the description of the file; None if its name says how to read it.
        encoding: of its text; by default that of the descriptor or the XML itself, otherwise UTF-8.

    Raises:
        XbusError: it is of another kind (``unknown_format``), can't be read (``unreadable_file``), or the encoding does
            not exist (``unknown_encoding``).
    """

    def __init__(self, path: Path, descriptor: Descriptor | None = None, encoding: str | None = None) -> None:
        if descriptor is None and path.suffix.lower() not in (".csv", ".jsonl"):
            raise XbusError(
                f"{path} is neither .csv nor .jsonl",
                "convert it to one of these, or name a descriptor",
                code="unknown_format",
            )
        self.path = path
        try:
            self.size = path.stat().st_size
            """In bytes."""
            self._file = _CountedFile(path)
            self._reported = 0
        except OSError as error:
            self._refuse_file(error)
        try:
            # FileIO has all that BinaryIO demands but lines.
            buffered = cast(BinaryIO, io.BufferedReader(self._file))
            self.reader = _reader(path, buffered, descriptor, encoding)
            """Knows the form of the file."""
        except XbusError:
            self._file.close()
            raise

    def __enter__(self) -> "ItemFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

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
                f"{self.path}:{error.line}: {error.reason}", "correct the file and send it again", code="bad_line"
            ) from error
        except OSError as error:
            self._refuse_file(error)

    def _report(self, on_bytes: Callable[[int], object]) -> None:
        if self._file.count > self._reported:
            on_bytes(self._file.count - self._reported)
            self._reported = self._file.count

    def describe(self, entry: Entry, fault: str) -> str:
        """Describe the fault, with file and line."""
        return f"{self.path}:{entry.line}: {fault}"

    def _refuse_file(self, error: OSError) -> NoReturn:
        raise XbusError(
            f"{self.path} can't be read ({error.strerror})", "name a readable file", code="unreadable_file"
        ) from error


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


def _reader(path: Path, file: BinaryIO, descriptor: Descriptor | None, encoding: str | None) -> EntryReader:
    if descriptor is None and path.suffix.lower() == ".jsonl":
        return JsonReader(Text(file, encoding or DEFAULT_ENCODING, "\n"))
    if descriptor is None:
        return CsvReader(Text(file, encoding or DEFAULT_ENCODING))
    layout = descriptor.layout
    text_encoding = encoding or descriptor.encoding or DEFAULT_ENCODING
    if isinstance(layout, CsvLayout):
        return DescribedCsvReader(layout, Text(file, text_encoding))
    if isinstance(layout, FixedLayout):
        return FixedReader(layout, Text(file, text_encoding))
    return XmlReader(layout, file, encoding)
