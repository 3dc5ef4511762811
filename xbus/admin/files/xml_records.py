"""Files of XML by a descriptor: one record after the other, of which only the current one is kept.

The parser of XML from elsewhere declares nothing, loads nothing and expands nothing.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement, TreeBuilder
from xml.parsers import expat

from xbus.admin.files.descriptor import ANY_NAMESPACE, Misfit, XmlLayout, is_called, item_of_element
from xbus.admin.files.text import encodable
from xbus.errors import Refused
from xbus.files.text_lines import (
    DEFAULT_ENCODING,
    MARKS,
    NO_TEXT,
    Entry,
    TextDecoder,
    Unreadable,
    order_of,
    say_nothing,
)

DEEPEST = 200
"""Elements within elements."""


def safe_parser(encoding: str | None = None) -> "expat.XMLParserType":
    """Make a parser that refuses everything by which a file could expand beyond its content.

    Args:
        encoding: the encoding to read by instead of the declared one.

    Raises:
        Unreadable: while it parses: the file declares or uses an entity that is not of XML itself.
    """
    parser = expat.ParserCreate(encoding, "}")
    parser.buffer_text = True
    parser.ordered_attributes = True

    def refuse(what: str) -> NoReturn:
        raise Unreadable(parser.CurrentLineNumber, f"{what}, which is refused for safety")

    def begin_doctype(name: str, system: str | None, public: str | None, has_subset: int) -> None:
        if has_subset:
            refuse("the DOCTYPE holds declarations")

    parser.StartDoctypeDeclHandler = begin_doctype
    parser.EntityDeclHandler = lambda *_: refuse("an entity is declared")
    parser.SkippedEntityHandler = lambda name, _: refuse(f"the entity &{name}; is declared elsewhere")
    return parser


def qualified(name: str) -> str:
    """Write a name of the parser as ``{namespace}name``."""
    return "{" + name if "}" in name else name


def paired(attributes: list[str]) -> dict[str, str]:
    """Map the attributes of an element from the parser's list to their names."""
    return {qualified(name): value for name, value in zip(attributes[::2], attributes[1::2], strict=True)}


def malformed(error: expat.ExpatError) -> Unreadable:
    """Make the same error with a sentence that names no position twice."""
    return Unreadable(error.lineno, f"this is not XML ({expat.ErrorString(error.code)})")


CHUNK_BYTES = 65_536

_DECLARATION = re.compile(rb"""<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([\w.-]{1,40})["']""", re.ASCII)

_OF_THE_PARSER = ("utf-8", "utf-16", "iso-8859-1", "us-ascii")


@dataclass(frozen=True, slots=True)
class XmlBounds:
    """The most that is kept of a file.

    Args:
        record_bytes: of a record. The default is above all that the bus takes for one item.
        record_parts: elements and attributes of a record. Each takes about 100 bytes of memory beside its text.
        markup_bytes: of a tag or a comment. The parser reads an incomplete one anew with each chunk: more let a file
            take hours.
    """

    record_bytes: int = 67_108_864
    record_parts: int = 500_000
    markup_bytes: int = 16_777_216


BOUNDS = XmlBounds()


class XmlReader:
    """Each record in the zone as its fields say.

    Args:
        layout: what the file looks like.
        file: where the bytes come from.
        encoding: what to read it by instead of what it declares; None for that. A byte order mark goes before both.
        bounds: the most that is kept of the file.
        tell: takes the encoding that a mark shows, where another one is named.

    Raises:
        Unreadable: while it reads: the file is not well-formed, or not safe.
    """

    def __init__(
        self,
        layout: XmlLayout,
        file: BinaryIO,
        encoding: str | None = None,
        bounds: XmlBounds = BOUNDS,
        tell: Callable[[str], object] = say_nothing,
    ) -> None:
        self.encoding = encoding or DEFAULT_ENCODING
        self._file = file
        self._bounds = bounds
        self._layout = layout
        self._tell = tell
        self._decoder = TextDecoder(encoding, tell) if encoding else None
        self._seen: dict[str, str] = {}
        """The tag of an element of the zone that was met last, by its name in the layout."""

    def __iter__(self) -> Iterator[Entry]:
        chunk = self._file.read(CHUNK_BYTES)
        decoder = self._decoder or _decoder_of(chunk)
        parser = safe_parser(None if decoder is None else "utf-8")
        records = _Records(self._layout, parser, self._bounds, self._seen, self.encoding)
        size = 0
        try:
            while chunk:
                data = chunk if decoder is None else _in_utf_8(decoder, chunk, parser)
                parser.Parse(data, False)
                size += len(data)
                records.check_size(size)
                yield from records.take()
                chunk = self._file.read(CHUNK_BYTES)
            parser.Parse(b"" if decoder is None else _in_utf_8(decoder, b"", parser), True)
            yield from records.take()
        except expat.ExpatError as error:
            raise malformed(error) from error
        except (LookupError, ValueError) as error:
            raise Unreadable(1, f"its encoding can't be read ({error})") from error

    def remark(self, sentence: str) -> str:
        told = re.sub("-(?=-)", "- ", sentence)
        return encodable(f"<!-- {told} -->\n", self.encoding, "xmlcharrefreplace")

    def head(self, sentence: str) -> str:
        return f'<?xml version="1.0" encoding="{self.encoding}"?>\n{self._frame[0]}\n{self.remark(sentence)}'

    def tail(self) -> str:
        return f"{self._frame[1]}\n"

    @property
    def _frame(self) -> tuple[str, str]:
        """The elements of the zone around nothing: what begins and what ends them."""
        # A name of any namespace is that which the file has.
        outmost, *others = [self._seen.get(name, name.removeprefix(ANY_NAMESPACE)) for name in self._layout.zone]
        inmost = frame = Element(outmost)
        for tag in others:
            inmost = SubElement(inmost, tag)
        inmost.text = "\n"
        begin, _, end = ElementTree.tostring(frame, encoding="unicode").partition("\n")
        return begin, end


class _Records:
    """Grows the records out of what the parser tells, and makes entries of them.

    A record belongs to the zone from where an element of the zone begins to where one of them ends.
    """

    def __init__(
        self, layout: XmlLayout, parser: expat.XMLParserType, bounds: XmlBounds, seen: dict[str, str], encoding: str
    ) -> None:
        self._layout = layout
        self._encoding = encoding
        self._seen = seen
        self._bounds = bounds
        self._parser = parser
        self._in_zone = False
        self._builder = TreeBuilder()
        self._depth = 0
        """Open elements in all."""
        self._lines: list[int] = []
        """The places where the open records begin; a record may have records in it."""
        self._entries: list[Entry] = []
        self._offset = 0
        """The place where the outermost open record begins, in bytes."""
        self._parts = 0
        """Elements and attributes of the outermost open record."""
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
            Unreadable: the open record, or the incomplete markup behind it, has grown too large to be kept.
        """
        bounds = self._bounds
        if self._lines and read - self._offset > bounds.record_bytes:
            raise Unreadable(self._lines[0], f"the record is larger than {bounds.record_bytes:,} bytes")
        if self._lines and self._parts > bounds.record_parts:
            raise Unreadable(
                self._lines[0], f"the record has more than {bounds.record_parts:,} elements and attributes"
            )
        if read - self._parser.CurrentByteIndex > bounds.markup_bytes:
            line = self._parser.CurrentLineNumber
            raise Unreadable(line, f"a tag or a comment is larger than {bounds.markup_bytes:,} bytes")

    def _begin(self, name: str, attributes: list[str]) -> None:
        tag = qualified(name)
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable(self._parser.CurrentLineNumber, f"more than {DEEPEST} elements within each other")
        self._in_zone = self._is_of_zone(tag) or self._in_zone
        if is_called(tag, self._layout.record):
            if not self._lines:
                self._builder = TreeBuilder()
                self._offset = self._parser.CurrentByteIndex
                self._parts = 0
            self._lines.append(self._parser.CurrentLineNumber)
        if self._lines:
            self._parts += 1 + len(attributes) // 2
            self._builder.start(tag, paired(attributes))

    def _end(self, name: str) -> None:
        tag = qualified(name)
        self._depth -= 1
        if self._lines:
            element = self._builder.end(tag)
            if is_called(tag, self._layout.record):
                line = self._lines.pop()
                if self._in_zone:
                    self._entries.append(self._entry(line, element))
        self._in_zone = self._in_zone and not self._is_of_zone(tag)

    def _is_of_zone(self, tag: str) -> bool:
        name = next((name for name in self._layout.zone if is_called(tag, name)), None)
        if name is not None:
            self._seen[name] = tag
        return name is not None

    def _text(self, text: str) -> None:
        if self._lines:
            self._builder.data(text)

    def _entry(self, line: int, record: Element) -> Entry:
        raw = partial(_written, record, self._encoding)
        try:
            return Entry(line, raw, item_of_element(self._layout.fields, record))
        except Misfit as misfit:
            return Entry(line, raw, fault=misfit.reason)


def _decoder_of(first: bytes) -> TextDecoder | None:
    """Choose the decoder by the first bytes of a file; None where the parser itself knows the encoding."""
    declared = _DECLARATION.match(first)
    name = order_of(first) or (declared[1].decode() if declared else "")
    if first.startswith(MARKS):
        return TextDecoder()
    if not name or name.lower() in _OF_THE_PARSER:
        return None
    try:
        return TextDecoder(name)
    except Refused as error:
        raise Unreadable(1, error.cause) from error


def _in_utf_8(decoder: TextDecoder, data: bytes, parser: expat.XMLParserType) -> bytes:
    text = decoder.take(data, is_last=not data)
    if fault := decoder.fault(text) or (decoder.is_broken and f"the rest is {NO_TEXT} {decoder.label}"):
        raise Unreadable(parser.CurrentLineNumber, fault)
    return text.encode()


def _written(record: Element, encoding: str) -> str:
    text = ElementTree.tostring(record, encoding="unicode").rstrip() + "\n"
    return encodable(text, encoding, "xmlcharrefreplace")
