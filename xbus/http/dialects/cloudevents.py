"""CloudEvents 1.0 in: binary, structured and batched mode of its HTTP protocol binding.

An event becomes an envelope with one event and one item: its data. Its ``type`` is the name of the event type, and its
``source`` and ``id`` are the key: so an event that is sent again is taken once. The rules are those of
https://github.com/cloudevents/spec, ``cloudevents/spec.md`` and ``cloudevents/bindings/http-protocol-binding.md``.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers as RequestHeaders
from starlette.requests import Request
from starlette.responses import Response

from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import EventStart, envelope_options
from xbus.emitter.receipt import Receipt
from xbus.errors import Refused
from xbus.headers import HeaderValue, event_tags
from xbus.http.bodies import Body, MediaType, off_loop, read_json
from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.native import REFUSALS, receipt_map
from xbus.http.front import publish
from xbus.http.request_tags import CONTENT_TYPE, one_value
from xbus.rpc.items import item_bytes
from xbus.rpc.messages import EnvelopeOptionsMap

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"

MOST_EVENTS = 1000
"""Events of a batch. Each is an envelope of its own, and all of them are under way at once."""

NAMES = {"time": "source_time", "dataschema": "schema", "datacontenttype": "content_type"}
"""Attributes that the bus knows by another name; ``traceparent`` and ``tracestate`` have the same."""

SAME = ("traceparent", "tracestate")
OWN = ("specversion", "type", "partitionkey")
"""Attributes that are no headers: they are the event type, and the partition key."""

_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_JSON = re.compile(r"application/json|text/json|.+\+json")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """An event as it came.

    Args:
        attributes: those of its context, extensions included.
        item: its data, packed.
    """

    attributes: Mapping[str, object]
    item: bytes

    @property
    def type_name(self) -> str:
        """The name of the event type."""
        return str(self.attributes["type"])

    @property
    def key(self) -> str:
        """The key of its envelope. A source has no blanks, so two events never have the same by chance."""
        return f"{self.attributes['source']} {self.attributes['id']}"

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The headers of its envelope."""
        return {
            NAMES.get(name, name if name in SAME else f"ce_{name}"): _header(name, value)
            for name, value in self.attributes.items()
            if name not in OWN
        }


async def _post(gateway: Gateway, request: Request) -> Response:
    line = await gateway.line(request)
    with closing(gateway.body(request)) as body:
        content_type = one_value(request.headers, CONTENT_TYPE)
        kind = MediaType.of(content_type)
        if kind.name == BATCHED:
            kind.check_utf_8()
            return JsonAnswer([*map(receipt_map, await _send_all(line, _batch(await body.json())))], HTTPStatus.CREATED)
        if kind.name == STRUCTURED:
            kind.check_utf_8()
            event = _structured(await body.json())
        else:
            event = await _binary(request, content_type, body)
        return JsonAnswer(receipt_map(await _send(line, _Envelope.of(event))), HTTPStatus.CREATED)


class _Envelope(NamedTuple):
    start: EventStart
    options: EnvelopeOptionsMap
    item: bytes

    @classmethod
    def of(cls, event: CloudEvent) -> "_Envelope":
        """Make the envelope of an event.

        Raises:
            Refused: an attribute can't be a header, or the partition key.
        """
        partition_key = event.attributes.get("partitionkey")
        tags = event_tags(None, None if partition_key is None else str(partition_key))
        options = envelope_options(None, event.key, event.headers)
        return cls(EventStart(event.type_name, tags=tags), options, event.item)


async def _send(line: EmitterContext, envelope: _Envelope) -> Receipt:
    async def items() -> AsyncIterator[bytes]:
        yield envelope.item

    return await publish(line, envelope.start, items(), envelope.options)


async def _send_all(line: EmitterContext, events: list[CloudEvent]) -> list[Receipt]:
    """Send all events at once, and wait for all: none where one of them is wrong in itself.

    After another error the whole batch may come again, as each event has a key.
    """
    envelopes = [*map(_Envelope.of, events)]
    answers = await asyncio.gather(*(_send(line, envelope) for envelope in envelopes), return_exceptions=True)
    receipts = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        receipts.append(answer)
    return receipts


def _batch(found: object) -> list[CloudEvent]:
    if not isinstance(found, list):
        raise _bad("the batch is no list", "send a list of events")
    if len(found) > MOST_EVENTS:
        raise Refused(f"the batch has more than {MOST_EVENTS} events", "send smaller batches", code="body_too_large")
    return [*map(_structured, found)]


def _structured(found: object) -> CloudEvent:
    if not isinstance(found, dict):
        raise _bad("an event is no map", "send a map with specversion, id, source and type")
    given = dict(found)
    data, encoded = given.pop("data", None), given.pop("data_base64", None)
    attributes = {name: value for name, value in given.items() if value is not None}
    _check(attributes)
    if encoded is None:
        return CloudEvent(attributes, item_bytes(data))
    if data is not None or not isinstance(encoded, str):
        raise _bad("the event has both data and data_base64, or the latter is no text", "send one of them")
    try:
        binary = base64.b64decode(encoded, validate=True)
    except ValueError:
        # Also a character outside of ASCII, which the library does not call an error of Base64.
        raise _bad("data_base64 is no base64", "encode it by RFC 4648") from None
    content_type = str(attributes.get("datacontenttype") or "")
    # Without a type JSON is meant for data alone (JSON format, 3.1): here nothing says more than bytes.
    return CloudEvent(attributes, _packed(binary, content_type) if content_type else _as_bytes(binary))


async def _binary(request: Request, content_type: str, body: Body) -> CloudEvent:
    names = [name for name in request.headers if name.startswith("ce-")]
    attributes: dict[str, object] = {name.removeprefix("ce-"): _text(name, request.headers) for name in names}
    if content_type:
        attributes["datacontenttype"] = content_type
    _check(attributes)
    is_json = not content_type or _JSON.fullmatch(MediaType.of(content_type).name)
    data = await (body.json_text() if is_json else body.whole())
    return CloudEvent(attributes, await off_loop(partial(_packed, content_type=content_type), data))


def _text(name: str, headers: RequestHeaders) -> str:
    """Read the value of an attribute by the HTTP protocol binding, 3.1.3.2: quotes first, then bytes as %XX."""
    value = one_value(headers, name)
    if quoted := _QUOTED.fullmatch(value):
        value = _ESCAPED.sub(r"\1", quoted[1])
    try:
        # Two ids that are no UTF-8 would become one. Older clients write UTF-8 as it is.
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise _bad(f"the header {name:.80} is no UTF-8", "write its characters in UTF-8, each byte as %XX") from None


def _packed(data: bytes, content_type: str) -> bytes:
    """Pack data by its media type: JSON as what it says, text as text, and anything else as bytes."""
    kind = MediaType.of(content_type)
    if _JSON.fullmatch(kind.name) or (not kind.name and data):
        kind.check_utf_8()
        return item_bytes(read_json(data, "the data"))
    if not data:
        return item_bytes(None)
    if kind.name.startswith("text/"):
        kind.check_utf_8()
        try:
            return item_bytes(data.decode())
        except UnicodeDecodeError:
            raise Refused("the data is no UTF-8", "send it in UTF-8", code="bad_body") from None
    return _as_bytes(data)


def _as_bytes(data: bytes) -> bytes:
    return item_bytes([data])[1:]


def _check(attributes: Mapping[str, object]) -> None:
    if attributes.get("specversion") != "1.0":
        raise _bad(f"the specversion is {attributes.get('specversion')!r:.40}", "send CloudEvents 1.0")
    for name in ("id", "source", "type"):
        value = attributes.get(name)
        if not isinstance(value, str) or not value:
            raise _bad(f"the attribute {name} is no text", "give it")
    if re.search(r"\s", str(attributes["source"])):
        raise _bad("the source is no URI reference", "write blanks as %20")
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name):
            raise _bad(f"an attribute can't be called {name!r:.80}", "use lower-case letters and digits")
        if not isinstance(value, str | int | bool):
            raise _bad(f"the attribute {name} is neither text nor a number nor a boolean", "put it into the data")


def _header(name: str, value: object) -> HeaderValue:
    assert isinstance(value, str | int | bool), "checked when the event came"
    return value


def _bad(cause: str, next_step: str) -> Refused:
    return Refused(cause, next_step, code="bad_event")


OPERATIONS = (
    Operation(
        "POST",
        "/v1/cloudevents",
        "Send CloudEvents 1.0, in binary, structured or batched mode. The type names the event type.",
        _post,
        {201: "Each event is durable, in an envelope of its own; the receipt, or a list of them."},
        ("bad_event", *REFUSALS),
        (STRUCTURED, BATCHED, "*/*"),
        {"ce-id": "In binary mode the id; other attributes likewise.", "ce-type": "In binary mode the event type."},
    ),
)
