"""A file of items: opens it, chooses its reader, treats bad entries as its person wants, and sends the good ones."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TextIO

from xbus.admin.files.descriptor import CsvLayout, Descriptor, XmlLayout
from xbus.admin.files.text import (
    AS_NAMED,
    JSON_LINES,
    OPTIONS,
    TITLE,
    Choices,
    CsvReader,
    DescribedCsvReader,
    FixedReader,
    JsonReader,
    PlainForm,
    Source,
    Text,
)
from xbus.admin.files.xml_records import XmlReader
from xbus.emitter import Envelope, Event
from xbus.errors import Refused, XbusError
from xbus.files.text_lines import NO_TEXT, Entry, Unreadable, say_nothing


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
        choices: how messages name what a person may choose about it.
        most_bytes: to which it may unpack; None for no bound.

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
        choices: Choices = OPTIONS,
        most_bytes: int | None = None,
    ) -> None:
        complete = form.complete(path, choices) if descriptor is None else form
        self._tell = tell
        self._reported = 0
        self.choices = choices
        self.name = name or str(path)
        """For people."""
        try:
            self._source = Source(path, most_bytes)
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
            is_named = error.encoding or NO_TEXT in error.reason
            other = self.choices.or_encoding(error.encoding) if is_named else ""
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
        otherwise = f"{self.choices.delimiter} says otherwise"
        return CsvReader(self._text(encoding), form.csv, lambda found: self._told(f"{found}; {otherwise}"))

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


class StopAtBadLine:
    """Ends everything at the first bad line."""

    count = 0

    def meet(self, file: ItemFile, entry: Entry, fault: str) -> None:
        """Report the fault.

        Raises:
            XbusError: always (``bad_line``).
        """
        other = file.choices.or_encoding() if NO_TEXT in fault else ""
        step = f"correct the line and send the file again{other}"
        raise XbusError(file.describe(entry, fault), step, code="bad_line")

    def finish(self) -> None:
        """Do nothing: it has no file."""

    def __enter__(self) -> "StopAtBadLine":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class SkipBadLines(StopAtBadLine):
    """Tells each bad line and goes on.

    Args:
        tell: takes what is wrong with each.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self.count = 0
        """Bad lines so far."""

    def meet(self, file: ItemFile, entry: Entry, fault: str) -> None:
        """Report the line and count it."""
        self.count += 1
        self._tell(file.describe(entry, fault))


class CollectBadLines(SkipBadLines):
    """Tells each bad line and writes it into a file, which can be sent once they are corrected.

    Args:
        tell: takes what is wrong with each.
        path: the file, which must not be there yet; it is written when the first bad line comes, and taken away again
            when the sending ends in an error before ``finish``.

    Raises:
        XbusError: the file is there (``file_exists``).
    """

    def __init__(self, tell: Callable[[str], object], path: Path) -> None:
        super().__init__(tell)
        self.path = path
        self._file: TextIO | None = None
        self._tail = ""
        self._is_finished = False
        if path.exists():
            self._refuse_present()

    def meet(self, file: ItemFile, entry: Entry, fault: str) -> None:
        """Report the line, count it and write it.

        Raises:
            XbusError: the file can't be written (``unwritable_file``, ``file_exists``).
        """
        super().meet(file, entry, fault)
        reader = file.reader
        try:
            if self._file is None:
                self._file = self.path.open("x", encoding=reader.encoding, errors="surrogateescape", newline="")
                self._file.write(reader.head(f"{TITLE}{file.name}: correct them below the remarks, and send this file"))
                self._tail = reader.tail()
            self._file.write(reader.remark(file.describe(entry, fault)) + entry.raw())
        except FileExistsError:
            self._refuse_present()
        except OSError as error:
            self._refuse_writing(error)

    def finish(self) -> None:
        """See that what was written stays, before anything is sealed without it.

        Raises:
            XbusError: the file can't be written (``unwritable_file``).
        """
        if self._file is not None:
            try:
                self._file.write(self._tail)
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                self._refuse_writing(error)
        self._is_finished = True

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError:
            pass  # Told by finish, or by the error that ends all this.
        if not self._is_finished:
            self.path.unlink(missing_ok=True)

    def _refuse_present(self) -> NoReturn:
        raise XbusError(f"{self.path} exists already", "name a new file for the bad lines", code="file_exists")

    def _refuse_writing(self, error: OSError) -> NoReturn:
        raise XbusError(
            f"{self.path} can't be written ({error.strerror})",
            "make room, or name another file",
            code="unwritable_file",
        ) from error


OF_THE_ITEM = frozenset({"bad_items", "item_too_large"})
"""Codes of refusals that an item itself is the reason for."""


def send_files(
    envelope: Envelope,
    event_types: Sequence[str],
    files: Sequence[ItemFile],
    bad: StopAtBadLine,
    on_bytes: Callable[[int], object],
    *,
    allow_empty: bool = False,
) -> None:
    """Send the items of each file as an event of its type.

    Args:
        envelope: open; whoever opened it ends it.
        event_types: the type of each file.
        files: to send.
        bad: decides about bad lines.
        on_bytes: called with the number of bytes read, again and again.
        allow_empty: whether a file may have no items.

    Raises:
        XbusError: a file can't be read, a line is bad, or a file has no items (``empty_file``).
    """
    for event_type, file in zip(event_types, files, strict=True):
        with envelope.event(event_type) as event:
            entries = _send_file(event, file, bad, on_bytes)
            if not entries and not allow_empty:
                raise XbusError(f"{file.name} has no items", file.choices.empty, code="empty_file")
    bad.finish()


def _send_file(event: Event, file: ItemFile, bad: StopAtBadLine, on_bytes: Callable[[int], object]) -> int:
    """Send the items of a file; give the number of its entries, bad ones included."""
    entries = 0
    for entry in file.entries(on_bytes):
        entries += 1
        if entry.fault:
            bad.meet(file, entry, entry.fault)
            continue
        try:
            event.send(entry.item)
        except Refused as error:
            if error.code not in OF_THE_ITEM:
                raise
            # What the bus said about an earlier batch would come up here too, and is not this line's fault.
            event.flush()
            bad.meet(file, entry, error.cause)
    return entries
