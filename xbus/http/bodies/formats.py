"""The formats of bodies, by their media types."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from xbus.errors import Refused
from xbus.http.bodies.body import UNCOUNTED_BYTES, Body
from xbus.http.bodies.csv_text import csv_rows
from xbus.http.bodies.json_text import parse_json
from xbus.http.bodies.packed import count_members, packed_items
from xbus.rpc.items import item_bytes


async def json_items(body: Body) -> AsyncIterator[bytes]:
    """Iterate over the members of a list, or over the one item that the body is."""
    for item in await _read(await body.json_text(), _json_list):
        yield item


async def ndjson_items(body: Body) -> AsyncIterator[bytes]:
    """Iterate over the lines, while they come; blank lines are no items."""
    number = 0
    async for line in body.lines():
        number += 1
        if not line.isspace():
            yield item_bytes(parse_json(line, f"line {number}"))


async def msgpack_items(body: Body) -> AsyncIterator[bytes]:
    """Iterate over the members of a list, or over the one item that the body is; their bytes stay as they are."""
    data = await body.whole()
    if len(data) > UNCOUNTED_BYTES:
        body.make(count_members(data))
    for item in await _read(data, packed_items):
        yield item


async def csv_items(body: Body) -> AsyncIterator[bytes]:
    """Iterate over the rows, while they come, as maps of texts."""
    async for row in csv_rows(body.lines(), body.keep):
        yield item_bytes(row)


FORMATS: Mapping[str, Callable[[Body], AsyncIterator[bytes]]] = {
    "application/json": json_items,
    "application/x-ndjson": ndjson_items,
    "application/jsonl": ndjson_items,
    "application/msgpack": msgpack_items,
    "application/vnd.msgpack": msgpack_items,
    "application/x-msgpack": msgpack_items,
    "text/csv": csv_items,
}


def media_type(content_type: str) -> str:
    """Give the media type in a header Content-Type, without its parameters.

    Raises:
        Refused: the text is not in UTF-8 (``unknown_format``).
    """
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise Refused(f"the body is in {value:.40}", "send it in UTF-8", code="unknown_format")
    return kind


def items_of(content_type: str, body: Body) -> AsyncIterator[bytes]:
    """Iterate over the items of a body, packed.

    Raises:
        Refused: no format has the type (``unknown_format``); later, what is wrong with the body.
    """
    read = FORMATS.get(media_type(content_type))
    if read is None:
        raise Refused(
            f"nobody reads the type {content_type[:80]!r}" if content_type else "the request has no Content-Type",
            f"send one of {', '.join(FORMATS)}",
            code="unknown_format",
        )
    return read(body)


def _json_list(data: bytes) -> list[bytes]:
    found = parse_json(data, "the body")
    return [item_bytes(item) for item in (found if isinstance(found, list) else [found])]


async def _read(data: bytes, read: Callable[[bytes], list[bytes]]) -> list[bytes]:
    """Read a document; a large one in a thread, as it would keep other requests waiting."""
    return read(data) if len(data) <= UNCOUNTED_BYTES else await asyncio.to_thread(read, data)
