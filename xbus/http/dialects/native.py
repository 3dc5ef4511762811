"""Our own dialect: publish envelopes, ask for immediate replies, and see whether the gateway works."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import envelope_options
from xbus.emitter.event import EventStart
from xbus.emitter.receipt import Receipt
from xbus.errors import Refused
from xbus.headers import event_tags
from xbus.http.bodies import FORMATS, items_of
from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.schemas import RECEIPT, SUBSCRIPTIONS
from xbus.http.publishing import ask, publish
from xbus.http.request_tags import CONTENT_TYPE, one_value, tags_of, token_of
from xbus.json_views import has_one_name_twice
from xbus.rpc.codec import Value, pack
from xbus.rpc.messages import EnvelopeOptionsMap
from xbus.rpc.messages.subscriptions import MeasuredSubscriptions, SubscriptionHealthMap
from xbus.rpc.shapes import AnswerReader

MSGPACK = "application/msgpack"

NOTE = "x-xbus-note"
"""The header of an answer that names the detected form of a body, such as the delimiter of CSV."""

TAGS = {
    "Idempotency-Key": "The key of the envelope: sent again under it, the envelope is taken once.",
    "X-Xbus-Ordering-Key": "Ordered roles get the envelopes of one key in their order.",
    "X-Xbus-Partition-Key": "Names what the event is about.",
    "X-Xbus-Correlation-Id": "The header correlation_id. Any other X-Xbus-Name becomes a header, too.",
    "traceparent": "The header traceparent, of W3C Trace Context.",
}

REFUSALS = (
    "bad_body",
    "token_missing",
    "type_not_allowed",
    "unknown_type",
    "session_superseded",
    "body_too_large",
    "unknown_format",
    "key_reused",
    "slow_down",
    "journal_unavailable",
)


T = TypeVar("T")
Send = Callable[[EmitterContext, EventStart, AsyncIterator[bytes], EnvelopeOptionsMap], Awaitable[T]]

_MEASURED = AnswerReader("xbus.measure_subscriptions", MeasuredSubscriptions)


def receipt_map(receipt: Receipt) -> dict[str, object]:
    """Describe a receipt in JSON."""
    return {
        "envelope_id": receipt.envelope_id,
        "position": receipt.position,
        "events": receipt.events,
        "items": receipt.items,
        "hash": receipt.hash.hex(),
    }


async def _sent(gateway: Gateway, request: Request, send: Send[T]) -> tuple[T, dict[str, str]]:
    """Send the items of a request as an envelope of one event. Give the outcome, and headers of the answer."""
    notes: list[str] = []
    tags = tags_of(request.headers)
    line = await gateway.line(request)
    body = gateway.body(request)
    start = EventStart(request.path_params["type"], tags=event_tags(None, tags.partition_key))
    options = envelope_options(tags.ordering_key, tags.key, tags.headers)
    try:
        items = items_of(one_value(request.headers, CONTENT_TYPE), body, notes.append)
        return await send(line, start, items, options), {NOTE: ascii("; ".join(notes))[1:-1]} if notes else {}
    finally:
        body.close()


async def _post_envelope(gateway: Gateway, request: Request) -> Response:
    receipt, notes = await _sent(gateway, request, publish)
    return JsonAnswer(receipt_map(receipt), HTTPStatus.CREATED, notes)


async def _ask(gateway: Gateway, request: Request) -> Response:
    (receipt, reply), notes = await _sent(gateway, request, ask)
    headers = {"x-xbus-envelope-id": receipt.envelope_id, "x-xbus-position": str(receipt.position), **notes}
    if MSGPACK in request.headers.get("accept", ""):
        return Response(pack(reply), headers=headers, media_type=MSGPACK)
    return Response(f"{_json(reply)}\n", headers=headers, media_type="application/json")


def _json(reply: Value) -> str:
    try:
        if not has_one_name_twice(reply):
            return json.dumps(reply, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        pass
    raise Refused(
        "the reply has values that JSON has not, and the envelope is sealed",
        f"ask with Accept: {MSGPACK}",
        code="reply_not_json",
    )


async def _get_subscriptions(gateway: Gateway, request: Request) -> Response:
    answer = await gateway.back.call("xbus.measure_subscriptions", token_of(request.headers))
    return JsonAnswer({"subscriptions": [*map(_health, _MEASURED.read(answer)["subscriptions"])]})


def _health(each: SubscriptionHealthMap) -> dict[str, object]:
    return {
        "name": each["name"],
        "state": each["state"],
        "events": each["events"],
        "waits_since": _moment(each["waits_since"]),
        "failures": each["failures"],
        "failing_since": _moment(each["failing_since"]),
        "retry_at": _moment(each["retry_at"]),
        "code": each["code"] or None,
        "error": each["error"] or None,
        "parked_batches": each["parked"],
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


async def _live(gateway: Gateway, request: Request) -> Response:
    return JsonAnswer({"alive": True})


async def _ready(gateway: Gateway, request: Request) -> Response:
    found = await gateway.front.health()
    healthy = found.get("healthy") if isinstance(found, dict) else None
    return JsonAnswer({"ready": True, "healthy": healthy})


OPERATIONS = (
    Operation(
        "POST",
        "/v1/types/{type}/envelopes",
        "Send an envelope of one event. Lists of JSON and msgpack, lines and rows are its items.",
        _post_envelope,
        {201: "The envelope is durable; the receipt."},
        REFUSALS,
        tuple(FORMATS),
        TAGS,
        produces={"application/json": RECEIPT},
    ),
    Operation(
        "POST",
        "/v1/types/{type}/ask",
        "Send an envelope of one event, and wait for the immediate reply of a consumer.",
        _ask,
        {200: "The reply, in JSON or msgpack; the envelope is durable."},
        (*REFUSALS, "no_reply", "reply_refused", "reply_timed_out"),
        tuple(FORMATS),
        TAGS,
    ),
    Operation(
        "GET",
        "/v1/subscriptions",
        "See how subscriptions are: what waits for each, and how its calls go.",
        _get_subscriptions,
        {200: "All subscriptions in use."},
        ("token_missing", "not_a_gateway", "journal_unavailable"),
        produces={"application/json": SUBSCRIPTIONS},
    ),
    Operation("GET", "/healthz", "See whether the gateway lives.", _live, {200: "It does."}, needs_token=False),
    Operation(
        "GET",
        "/readyz",
        "See whether the gateway reaches the broker.",
        _ready,
        {200: "It does."},
        ("timed_out",),
        needs_token=False,
    ),
)
