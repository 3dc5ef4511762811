"""Files of XML by a descriptor: one record after the other, of which only the current one is kept."""

from collections.abc import Iterator
from functools import partial
from typing import BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement, TreeBuilder
from xml.parsers import expat

from xbus.admin.files.casting import Misfit
from xbus.admin.files.descriptor import XmlLayout, item_of_element
from xbus.admin.files.entry import Entry, Unreadable
from xbus.admin.files.xml_parser import DEEPEST, malformed, paired, qualified, safe_parser

CHUNK_BYTES = 65_536

LARGEST_RECORD = 67_108_864
"""Bytes; above all that the bus takes for one item."""


class XmlReader:
    """Each record in the zone as its fields say.

    Args:
        layout: what the file looks like.
        file: where the bytes come from.
        encoding: what to read it by instead of what it declares; None for that.
        largest_record: bytes of the largest record that is kept.

    Raises:
        Unreadable: while it reads: the file is not well-formed, or not safe.
    """

    def __init__(
        self, layout: XmlLayout, file: BinaryIO, encoding: str | None = None, largest_record: int = LARGEST_RECORD
    ) -> None:
        self.encoding = encoding or "utf-8"
        self._layout = layout
        self._file = file
        self._given_encoding = encoding
        self._largest_record = largest_record

    def __iter__(self) -> Iterator[Entry]:
        parser = safe_parser(self._given_encoding)
        records = _Records(self._layout, parser, self._largest_record)
        size = 0
        try:
            while chunk := self._file.read(CHUNK_BYTES):
                parser.Parse(chunk, False)
                size += len(chunk)
                records.check_size(size)
                yield from records.take()
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise malformed(error) from error
        except (LookupError, ValueError) as error:
            raise Unreadable(1, f"its encoding can't be read ({error})") from error

    def remark(self, sentence: str) -> str:
        return f"<!-- {sentence.replace('--', '- -')} -->\n"

    def head(self, sentence: str) -> str:
        return f'<?xml version="1.0" encoding="{self.encoding}"?>\n{self._frame[0]}\n{self.remark(sentence)}'

    def tail(self) -> str:
        return f"{self._frame[1]}\n"

    @property
    def _frame(self) -> tuple[str, str]:
        """The elements of the zone around nothing: what begins and what ends them."""
        frame = Element(self._layout.zone[0])
        inmost = frame
        for name in self._layout.zone[1:]:
            inmost = SubElement(inmost, name)
        inmost.text = "\n"
        begin, _, end = ElementTree.tostring(frame, encoding="unicode").partition("\n")
        return begin, end


class _Records:
    """Grows the records out of what the parser tells, and makes entries of them.

    A record belongs to the zone from where an element of the zone begins to where one of them ends.
    """

    def __init__(self, layout: XmlLayout, parser: expat.XMLParserType, largest: int) -> None:
        self._layout = layout
        self._largest = largest
        self._parser = parser
        self._zone = frozenset(layout.zone)
        self._in_zone = False
        self._builder = TreeBuilder()
        self._depth = 0
        """Open elements in all."""
        self._lines: list[int] = []
        """Where the open records begin; a record may hold records."""
        self._entries: list[Entry] = []
        self._offset = 0
        """Where the outermost open record begins, in bytes."""
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text

    def take(self) -> list[Entry]:
        """Take the entries that are complete since the last time."""
        entries, self._entries = self._entries, []
        return entries

    def check_size(self, read: int) -> None:
        """Go on after ``read`` bytes of the file.

        Raises:
            Unreadable: the open record has grown too large to be kept.
        """
        if self._lines and read - self._offset > self._largest:
            raise Unreadable(self._lines[0], f"the record is larger than {self._largest:,} bytes")

    def _begin(self, name: str, attributes: list[str]) -> None:
        tag = qualified(name)
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable(self._parser.CurrentLineNumber, f"more than {DEEPEST} elements within each other")
        self._in_zone = self._in_zone or tag in self._zone
        if tag == self._layout.record:
            if not self._lines:
                self._builder = TreeBuilder()
                self._offset = self._parser.CurrentByteIndex
            self._lines.append(self._parser.CurrentLineNumber)
        if self._lines:
            self._builder.start(tag, paired(attributes))

    def _end(self, name: str) -> None:
        tag = qualified(name)
        self._depth -= 1
        if self._lines:
            element = self._builder.end(tag)
            if tag == self._layout.record:
                line = self._lines.pop()
                if self._in_zone:
                    self._entries.append(self._entry(line, element))
        self._in_zone = self._in_zone and tag not in self._zone

    def _text(self, text: str) -> None:
        if self._lines:
            self._builder.data(text)

    def _entry(self, line: int, record: Element) -> Entry:
        raw = partial(_written, record)
        try:
            return Entry(line, raw, item_of_element(self._layout.fields, record))
        except Misfit as misfit:
            return Entry(line, raw, fault=misfit.reason)


def _written(record: Element) -> str:
    return ElementTree.tostring(record, encoding="unicode").rstrip() + "\n"
