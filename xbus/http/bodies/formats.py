"""The formats of bodies, by their media types."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

from xbus.errors import Refused
from xbus.files.text_lines import say_nothing
from xbus.http.bodies.body import UNCOUNTED_BYTES, Body, off_loop, read_json
from xbus.http.bodies.csv_body import csv_items
from xbus.http.bodies.media_types import MediaType
from xbus.http.bodies.packed import count_members, packed_items
from xbus.rpc.items import item_bytes

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
    return item_bytes(read_json(line, f"line {number}"))


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
    return [item_bytes(item) for item in (found if isinstance(found, list) else [found])]
