"""Writes batches as bodies of calls: our own JSON, batches of CloudEvents 1.0, and Routemaster's; pure.

The source of Routemaster's format is the documentation of deliveroo/routemaster, "Receiving events".
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xbus.headers import HeaderValue
from xbus.http.dialects.cloudevents import BATCHED, NAMES
from xbus.http.json_values import plain
from xbus.reader.batch import ReadEvent, ReadItem
from xbus.reader.claimed import ReaderBatch
from xbus.recipient.refusal import Refusal

_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_OF_HEADERS = {header: attribute for attribute, header in NAMES.items()}


def json_body(batch: ReaderBatch) -> bytes:
    """Write a batch as ``{"events": [...]}``: each event with its items."""
    return _dumped({"events": [*map(_event, batch.events)]})


def _event(event: ReadEvent) -> dict[str, object]:
    return {
        "id": event.id,
        "type": event.type_name,
        "envelope_id": event.envelope_id,
        "position": event.position,
        "time": event.sealed_at.isoformat(),
        "emitter": event.emitter,
        "key": event.key,
        "partition_key": event.partition_key,
        "headers": plain(event.headers),
        "first_index": event.first_index,
        "items": [_plain_of(item, _value(item)) for item in event],
    }


def cloudevents_body(batch: ReaderBatch) -> bytes:
    """Write each item as an event of CloudEvents, all of them as a batch."""
    return _dumped([_cloud_event(event, item) for event in batch.events for item in event])


def _cloud_event(event: ReadEvent, item: ReadItem) -> dict[str, object]:
    found = dict(_attributes(event.headers))
    # One that came as an event of CloudEvents goes on under its own id: it has one item.
    if event.size != 1 or item.index != 0 or "id" not in found or "source" not in found:
        found |= {"id": f"{event.id}/{item.index}", "source": f"/xbus/{event.emitter}".replace(" ", "%20")}
    found |= {"specversion": "1.0", "type": event.type_name}
    found.setdefault("time", event.sealed_at.isoformat())
    if event.partition_key is not None:
        found["partitionkey"] = event.partition_key
    value = _value(item)
    if isinstance(value, bytes):
        return found | {"data_base64": base64.b64encode(value).decode()}
    return found | {"data": _plain_of(item, value)}


def _attributes(headers: Mapping[str, HeaderValue]) -> Iterator[tuple[str, object]]:
    """Give headers as the attributes as which they came, see ``xbus.http.dialects.cloudevents``."""
    for header, value in headers.items():
        name = _OF_HEADERS.get(header, header.removeprefix("ce_"))
        if _ATTRIBUTE.fullmatch(name) and (header in _OF_HEADERS or header != name or name.startswith("trace")):
            yield name, plain(value)


def routemaster_body(batch: ReaderBatch) -> bytes:
    """Write each item as an event of its topic. Items that did not come by Routemaster's dialect are ``noop``."""
    return _dumped([_topic_event(event, item) for event in batch.events for item in event])


def _topic_event(event: ReadEvent, item: ReadItem) -> dict[str, object]:
    value = _value(item)
    fields: Mapping[Any, object] = value if isinstance(value, Mapping) else {}
    sealed = int(event.sealed_at.timestamp() * 1000)
    told = {
        "topic": event.type_name,
        "type": str(fields.get("type", "noop")),
        "url": str(fields.get("url", "")),
        "t": _plain_of(item, fields.get("timestamp", sealed)),
    }
    data = fields.get("data")
    return told if data is None else told | {"data": _plain_of(item, data)}


def _value(item: ReadItem) -> object:
    """Give the value of an item; its bytes where they are no msgpack."""
    try:
        value: object = item.value
    except Refusal:
        return item.data
    return value


def _plain_of(item: ReadItem, value: object) -> object:
    """Give a value of an item as JSON, or the whole item in Base64 if it is nested too deep."""
    try:
        return plain(value)
    except RecursionError:
        return plain(item.data)


def _dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


FORMATS: Mapping[str, tuple[str, Callable[[ReaderBatch], bytes]]] = {
    "json": ("application/json", json_body),
    "cloudevents": (BATCHED, cloudevents_body),
    "routemaster": ("application/json", routemaster_body),
}
"""The media type of each format, and how its bodies are written."""
