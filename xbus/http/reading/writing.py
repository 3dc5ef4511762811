"""Writes what was read in the formats of HTTP. Pure.

An item is what its bytes say: msgpack, else JSON, else bytes. JSON has no bytes, which become base64; no number that is
infinite or none, which become null; and no keys but texts. A map in which two keys would be the same text becomes a
list of pairs. A client that wants all of it asks for msgpack.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import chain

import msgpack  # type: ignore[import-untyped]

from xbus.errors import ProtocolError
from xbus.http.json_values import plain
from xbus.http.reading.questions import AT
from xbus.http.reading.tickets import CheckpointTicket, place_text
from xbus.json_text import parse_json
from xbus.json_views import has_one_name_twice
from xbus.reader import ReadEvent
from xbus.rpc.codec import pack, unpack
from xbus.rpc.messages import ClaimedBatchMap

JSON, NDJSON, MSGPACK = "application/json", "application/x-ndjson", "application/msgpack"

BATCH_FORMATS = (JSON, NDJSON, MSGPACK)
"""The formats of batches by their media types, the one first that comes where nothing is asked for."""


def batch_body(media_type: str, batch: ClaimedBatchMap, events: Sequence[ReadEvent], ticket: CheckpointTicket) -> bytes:
    """Write a batch.

    Args:
        media_type: one of ``BATCH_FORMATS``.
        batch: as the back gave it.
        events: those of the batch.
        ticket: settles it.
    """
    if media_type == NDJSON:
        return "".join([f"{line}\n" for _, line in chain.from_iterable(map(item_lines, events))]).encode()
    facts: dict[str, object] = {
        "checkpoint": str(ticket),
        "range": batch["range"],
        "from": place_text(batch["from"]),
        "to": place_text(batch["to"]),
        "repeated": batch["repeated"],
    }
    if media_type == MSGPACK:
        return _packed_map(facts, {"events": _packed_list([_packed_event(event) for event in events])})
    return f"{_with(facts, 'events', _list(map(_json_event, events)))}\n".encode()


def item_lines(event: ReadEvent) -> Iterable[tuple[list[int], str]]:
    """Write each item as an object of JSON with the facts of its event, behind its place."""
    before = _json(_facts(event))[:-1]
    for index, data in enumerate(event.data, event.first_index):
        yield [event.position, event.index, index], f'{before},"index":{index},"value":{_json_item(data)}}}'


def sse_event(place: list[int], line: str) -> str:
    """Write an item as an event of server-sent events; its id is its place."""
    return f"id: {place_text(place)}\ndata: {line}\n\n"


def sse_mark(place: list[int]) -> str:
    """Write where to go on, without an event: whoever loses the connection now loses nothing."""
    return f"id: {AT}{place_text(place)}\n\n"


def _facts(event: ReadEvent) -> dict[str, object]:
    return {
        "envelope_id": event.envelope_id,
        "event_id": event.id,
        "type": event.type_name,
        "emitter": event.emitter,
        "position": event.position,
        "event": event.index,
        "sealed_at": event.sealed_at.isoformat(),
        "key": event.key,
        "ordering_key": event.ordering_key,
        "partition_key": event.partition_key,
        "headers": dict(event.headers),
    }


def _json_event(event: ReadEvent) -> str:
    return _with({**_facts(event), "first_index": event.first_index}, "items", _list(map(_json_item, event.data)))


def _packed_event(event: ReadEvent) -> bytes:
    items = _packed_list([data if _is_packed(data) else pack(data) for data in event.data])
    return _packed_map({**_facts(event), "first_index": event.first_index}, {"items": items})


def _packed_map(facts: dict[str, object], parts: dict[str, bytes]) -> bytes:
    packer = msgpack.Packer(default=str)
    head: bytes = packer.pack_map_header(len(facts) + len(parts))
    pairs = [packer.pack(name) + packer.pack(value) for name, value in facts.items()]
    return b"".join([head, *pairs, *(packer.pack(name) + part for name, part in parts.items())])


def _packed_list(members: Sequence[bytes]) -> bytes:
    head: bytes = msgpack.Packer().pack_array_header(len(members))
    return b"".join([head, *members])


def _is_packed(data: bytes) -> bool:
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1)
    unpacker.feed(data)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        return False
    ends_at: int = unpacker.tell()
    return ends_at == len(data)


def _json_item(data: bytes) -> str:
    try:
        return _json(_value(data))
    except RecursionError:
        # It is nested too deep for JSON.
        return _json(data)


def _value(data: bytes) -> object:
    """Read an item; its bytes where they are neither msgpack that the bus unpacks nor JSON."""
    try:
        return unpack(data)
    except ProtocolError:
        pass
    try:
        return parse_json(data)
    except ValueError:
        return data


def _json(value: object) -> str:
    if not has_one_name_twice(value):
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError):
            pass
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def _with(facts: dict[str, object], name: str, written: str) -> str:
    return f'{_json(facts)[:-1]},"{name}":{written}}}'


def _list(members: Iterable[str]) -> str:
    return f"[{','.join(members)}]"
