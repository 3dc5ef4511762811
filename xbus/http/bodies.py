"""Turns the bodies of requests into items, part by part where their format allows it, within the gateway's limits."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgpack  # type: ignore[import-untyped]

from xbus.errors import Failed, Refused
from xbus.files.csv_items import CsvForm, CsvItems, named_delimiter
from xbus.files.text_lines import NO_TEXT, Entry, LineDecoder, TextDecoder, TextLine, Unreadable, say_nothing
from xbus.json_text import parse_json
from xbus.rpc.items import item_bytes

_PARAMETER = re.compile(r""";\s*([^\s;="]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]*)""")

UTF_8 = ("utf-8", "utf8", "us-ascii")


@dataclass(frozen=True, slots=True)
class MediaType:
    """A media type with its parameters.

    Args:
        name: the type and subtype in lower case; empty where a request has none.
        parameters: by their names.
    """

    name: str
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content_type: str) -> "MediaType":
        """Read the header."""
        name, _, _ = content_type.partition(";")
        found = {key.lower(): _unquoted(value) for key, value in _PARAMETER.findall(content_type)}
        return cls(name.strip().lower(), found)

    def check_utf_8(self) -> None:
        """Let a text in UTF-8 pass.

        Raises:
            Refused: the text is in something else (``unknown_format``).
        """
        charset = self.parameters.get("charset", "utf-8").lower()
        if charset not in UTF_8:
            raise Refused(f"the body is in {charset:.40}", "send it in UTF-8", code="unknown_format")


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


Text = TypeVar("Text", bound=Sized)
Found = TypeVar("Found")

MOST_VALUES = 1_000_000
"""The values of a document that is read as a whole. More take more memory, many times that of their text."""

VALUE_BYTES = 100
"""Bytes that a value takes in memory, about, with its place in a list or a map."""

UNCOUNTED_BYTES = 65_536
"""Documents up to this size are small enough, whatever is in them."""

SEPARATORS = (b",", b":", b"[", b"{")
"""One of these bytes comes before each value of JSON but the first. Bytes within texts count, too."""


class Room:
    """Bounds the bytes that all requests keep together, of documents and lines that are not complete or not sent yet.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = most

    @property
    def taken(self) -> int:
        """The bytes that are taken."""
        return self.most - self._left

    def held(self, size: int) -> "HeldRoom":
        """Take room until it is closed. A request that wants more than the whole room takes all.

        Raises:
            Failed: ``gateway_full``.
        """
        return HeldRoom(self, min(size, self.most))

    def take(self, size: int) -> None:
        """Take room; a negative size gives some back.

        Raises:
            Failed: other requests have it (``gateway_full``).
        """
        if size > self._left:
            raise Failed("other requests fill the memory of the gateway", "send it again", code="gateway_full")
        self._left -= size


class HeldRoom:
    """Some of the room, until it is closed.

    Args:
        room: all of it.
        size: bytes.
    """

    def __init__(self, room: Room, size: int) -> None:
        room.take(size)
        self._room = room
        self._size = size

    def close(self) -> None:
        """Give it back; again it does nothing."""
        size, self._size = self._size, 0
        self._room.take(-size)


class Body:
    """The body of a request. Its kept bytes take room until it is closed.

    Args:
        parts: as they come.
        room: bounds what is kept of all bodies.
        most_kept: the most bytes of it that are kept at once.
    """

    def __init__(self, parts: AsyncIterator[bytes], room: Room, most_kept: int) -> None:
        self._most_kept = most_kept
        self._parts = parts
        self._room = room
        self._kept = 0
        self._made = 0

    def close(self) -> None:
        """Give the room back."""
        self.keep(-self._kept)
        self.unmake()

    def unmake(self) -> None:
        """Give the room of the values back."""
        made, self._made = self._made, 0
        self._room.take(-made)

    async def json_text(self) -> bytes:
        """Read all of it, and take room for the values that are to be made of it.

        Raises:
            Refused: it is too large for that, or has too many values (``body_too_large``).
            Failed: ``gateway_full``.
        """
        text = await self.whole()
        self.make_of_json(text)
        return text

    async def json(self) -> object:
        """Read all of it as JSON.

        Raises:
            Refused: it is no JSON (``bad_body``), or as of :meth:`json_text`.
            Failed: ``gateway_full``.
        """
        return await off_loop(read_json, await self.json_text())

    def make_of_json(self, text: bytes) -> None:
        """Take room for the values that are to be made of a document or a line.

        Raises:
            Refused: there are too many (``body_too_large``).
            Failed: ``gateway_full``.
        """
        if len(text) > UNCOUNTED_BYTES:
            self.make(1 + sum(map(text.count, SEPARATORS)))

    def make(self, values: int) -> None:
        """Take room for values. A request that needs more than the whole room takes all.

        Raises:
            Refused: there are too many (``body_too_large``).
            Failed: other requests have the room (``gateway_full``).
        """
        if values > MOST_VALUES:
            raise Refused(
                f"the document has {values:,} values, and more than {MOST_VALUES:,} are not read as a whole",
                "send items line by line, as application/x-ndjson",
                code="body_too_large",
            )
        size = min(values * VALUE_BYTES, self._room.most - self._kept - self._made)
        self._room.take(size)
        self._made += size

    def parts(self) -> AsyncIterator[bytes]:
        """Give its parts, as they come. The caller reports kept bytes by :meth:`hold`."""
        return self._parts

    async def whole(self) -> bytes:
        """Read all of it.

        Raises:
            Refused: it is too large for that (``body_too_large``).
            Failed: ``gateway_full``.
        """
        parts: list[bytes] = []
        async for part in self._parts:
            self.keep(len(part))
            parts.append(part)
        return b"".join(parts)

    async def lines(self) -> AsyncIterator[bytes]:
        """Iterate over its lines, each with its end; only the last may lack it.

        Raises:
            Refused: a line is too large (``body_too_large``).
            Failed: ``gateway_full``.
        """
        rest: list[bytes] = []
        of_line = 0
        async for part in self._parts:
            *lines, last = part.split(b"\n")
            for line in lines:
                rest.append(line)
                yield b"".join(rest) + b"\n"
                rest = []
                self.keep(-of_line)
                of_line = 0
            rest.append(last)
            self.keep(len(last))
            of_line += len(last)
        if of_line:
            yield b"".join(rest)

    def hold(self, kept: int) -> None:
        """Take room for so many bytes in all, and give back what was kept beyond.

        Raises:
            Refused: it is more than is allowed at once (``body_too_large``).
            Failed: ``gateway_full``.
        """
        self.keep(kept - self._kept)

    def keep(self, more: int) -> None:
        """Take room for bytes that are kept; a negative number gives some back.

        Raises:
            Refused: more would be kept than is allowed at once (``body_too_large``).
            Failed: ``gateway_full``.
        """
        if self._kept + more > self._most_kept:
            raise Refused(
                f"a document or a line has more than {self._most_kept} bytes",
                "send items line by line, as application/x-ndjson",
                code="body_too_large",
            )
        self._room.take(more)
        self._kept += more


async def off_loop(read: Callable[[Text], Found], text: Text) -> Found:
    """Read a text; a large one in a thread, as it would keep other requests waiting."""
    return read(text) if len(text) <= UNCOUNTED_BYTES else await asyncio.to_thread(read, text)


def read_json(text: bytes, place: str = "the body") -> object:
    """Read a text of JSON.

    Args:
        text: in UTF-8.
        place: where it is, for the error.

    Raises:
        Refused: the text is no JSON, or something of it would get lost (``bad_body``).
    """
    try:
        return parse_json(text)
    except ValueError as error:
        raise Refused(f"{place} is no JSON ({error!s:.160})", "correct it", code="bad_body") from None


MOST_GROWTH = 64
"""Bytes of items at the most for each character of rows: items repeat the names. Fewer refuse sparse rows under long
names, more let small requests fill the journal."""

FREE_BYTES = 1_048_576
"""Bytes of items that no growth bounds."""


def csv_form(media_type: MediaType) -> CsvForm:
    """Read the form that the parameters ``header`` (RFC 4180) and ``delimiter`` say.

    Raises:
        Refused: they say something else (``unknown_format``).
    """
    header = media_type.parameters.get("header", "present").lower()
    delimiter = media_type.parameters.get("delimiter", "")
    if header not in ("present", "absent"):
        raise Refused(f"header={header:.40} means nothing", "give header=present or absent", code="unknown_format")
    try:
        return CsvForm(named_delimiter(delimiter) if delimiter else "", has_names=header == "present")
    except ValueError as error:
        raise Refused(str(error), 'give one, such as delimiter=";", or tab', code="unknown_format") from None


async def csv_items(body: Body, media_type: MediaType, tell: Callable[[str], object]) -> AsyncIterator[bytes]:
    """Iterate over the rows, while they come, as maps of texts, or as lists where there are no names.

    Raises:
        Refused: it is no CSV (``bad_body``), or its items are far larger than itself (``body_too_large``).
    """
    decoder = TextDecoder(media_type.parameters.get("charset", ""), tell)
    lines = LineDecoder(decoder, is_universal=True)
    items = CsvItems(csv_form(media_type), decoder, tell)
    most = FREE_BYTES
    async for line in _lines(body, lines, items):
        if line is None:
            entries: Iterable[Entry] = items.finish()
        elif len(line.text) > UNCOUNTED_BYTES:
            body.make(line.text.count('"'))
            entries = await asyncio.to_thread(lambda line: [*_checked(items.take(line))], line)
            body.unmake()
        else:
            entries = items.take(line)
        most += 0 if line is None else MOST_GROWTH * len(line.text)
        for entry in _checked(entries):
            item = item_bytes(entry.item)
            most -= len(item)
            if most < 0:
                raise Refused(
                    f"the items are more than {MOST_GROWTH} times as large as their rows, as each repeats the names",
                    "send shorter names, or items line by line, as application/x-ndjson",
                    code="body_too_large",
                )
            yield item


async def _lines(body: Body, lines: LineDecoder, items: CsvItems) -> AsyncIterator[TextLine | None]:
    """Iterate over the lines, and None at the end; what is kept of them and of rows takes room."""
    try:
        async for part in body.parts():
            for line in lines.take(part):
                yield line
            body.hold(lines.kept + items.kept)
        for line in lines.take(b"", is_last=True):
            yield line
        yield None
    except Unreadable as error:
        raise _bad(error.line, error.reason, error.encoding) from None


def _checked(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Let good entries pass.

    Raises:
        Refused: one is bad (``bad_body``).
    """
    try:
        for entry in entries:
            if entry.fault:
                raise _bad(entry.line, entry.fault)
            yield entry
    except Unreadable as error:
        raise _bad(error.line, error.reason, error.encoding) from None


def _bad(line: int, fault: str, encoding: str = "") -> Refused:
    encoding = encoding or ("…, which names its encoding" if NO_TEXT in fault else "")
    other = f", or send it as text/csv; charset={encoding}" if encoding else ""
    return Refused(f"the body is no CSV: line {line}: {fault}", f"correct it{other}", code="bad_body")


def count_members(data: bytes) -> int:
    """Read how many members a list says that it has; 1 for anything else."""
    if not _is_list(data):
        return 1
    width = {0xDC: 2, 0xDD: 4}.get(data[0])
    return data[0] & 0x0F if width is None else int.from_bytes(data[1 : 1 + width], "big")


def packed_items(data: bytes) -> list[bytes]:
    """Cut a list into its members; anything else is one item.

    Raises:
        Refused: the data is not one value of msgpack (``bad_body``).
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1)
    unpacker.feed(data)
    try:
        members = unpacker.read_array_header() if _is_list(data) else 1
        if members > len(data):
            raise ValueError("the list ends too early")
        items = [*_cut(unpacker, data, members)]
    except (ValueError, msgpack.UnpackException) as error:
        raise _bad_list(f"{error!r:.80}") from None
    if unpacker.tell() != len(data):
        raise _bad_list("more stands behind the first value")
    return items


def _cut(unpacker: msgpack.Unpacker, data: bytes, members: int) -> Iterator[bytes]:
    start = unpacker.tell()
    for _ in range(members):
        unpacker.skip()
        yield data[start : unpacker.tell()]
        start = unpacker.tell()


def _is_list(data: bytes) -> bool:
    """Look at the first byte, by the specification of msgpack."""
    return bool(data) and (0x90 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD))


def _bad_list(reason: str) -> Refused:
    return Refused(f"the body is no msgpack ({reason})", "send one value: an item, or a list of items", code="bad_body")


Tell = Callable[[str], object]


async def json_items(body: Body, media_type: MediaType, tell: Tell) -> AsyncIterator[bytes]:
    """Iterate over the members of a list, or over the one item that the body is."""
    media_type.check_utf_8()
    for item in await off_loop(_json_list, await body.json_text()):
        yield item


async def ndjson_items(body: Body, media_type: MediaType, tell: Tell) -> AsyncIterator[bytes]:
    """Iterate over the lines, while they come; blank lines are no items.

    Raises:
        Refused: a line is no JSON, or there is no item (``bad_body``).
    """
    media_type.check_utf_8()
    number = 0
    async for line in body.lines():
        number += 1
        if not line.isspace():
            body.make_of_json(line)
            yield await off_loop(partial(_json_item, number), line)
            body.unmake()


async def msgpack_items(body: Body, media_type: MediaType, tell: Tell) -> AsyncIterator[bytes]:
    """Iterate over the members of a list, or over the body as one item; the bytes stay as they are."""
    data = await body.whole()
    if len(data) > UNCOUNTED_BYTES:
        body.make(count_members(data))
    for item in await off_loop(packed_items, data):
        yield item


def _json_item(number: int, line: bytes) -> bytes:
    place = f"line {number}"
    return _placed(read_json(line, place), place)


def _placed(item: object, place: str) -> bytes:
    """Pack an item.

    Raises:
        Refused: it can't be packed (``bad_items``); the cause begins with the place.
    """
    try:
        return item_bytes(item)
    except Refused as error:
        next_step = "send whole numbers of at most 64 bits, and texts of whole characters"
        raise Refused(f"{place}: {error.cause}", next_step, code=error.code) from None


async def _some(items: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Refuse a body without items: it is mostly a fault, and would use up its idempotency key."""
    is_empty = True
    async for item in items:
        is_empty = False
        yield item
    if is_empty:
        raise Refused(
            "the body has no items", "send one, or [] as application/json if an empty event is meant", code="bad_body"
        )


FORMATS: Mapping[str, Callable[[Body, MediaType, Tell], AsyncIterator[bytes]]] = {
    "application/json": json_items,
    "application/x-ndjson": ndjson_items,
    "application/jsonl": ndjson_items,
    "application/msgpack": msgpack_items,
    "application/vnd.msgpack": msgpack_items,
    "application/x-msgpack": msgpack_items,
    "text/csv": csv_items,
}

LISTS = (json_items, msgpack_items)
"""Formats with lists: an empty one says that no item is meant."""


def items_of(content_type: str, body: Body, tell: Tell = say_nothing) -> AsyncIterator[bytes]:
    """Iterate over the items of a body, packed.

    Args:
        content_type: the header of the request.
        body: of the request.
        tell: takes what was found out about the form of the body.

    Raises:
        Refused: no format has the type (``unknown_format``); later, what is wrong with the body.
    """
    media_type = MediaType.of(content_type)
    read = FORMATS.get(media_type.name)
    if read is None:
        raise Refused(
            f"nobody reads the type {content_type[:80]!r}" if content_type else "the request has no Content-Type",
            f"send one of {', '.join(FORMATS)}",
            code="unknown_format",
        )
    items = read(body, media_type, tell)
    return items if read in LISTS else _some(items)


def _json_list(data: bytes) -> list[bytes]:
    found = read_json(data)
    items = found if isinstance(found, list) else [found]
    return [_placed(item, f"item {number}") for number, item in enumerate(items, 1)]
