"""Our own dialect: publish envelopes, ask for replies, read batches and tails, and see whether the gateway works."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TypeVar

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from xbus.emitter.context import EmitterContext
from xbus.emitter.envelope import EventStart, envelope_options
from xbus.emitter.receipt import Receipt
from xbus.errors import Refused
from xbus.headers import event_tags
from xbus.http import batches
from xbus.http.bodies import FORMATS, items_of
from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.front import ask, publish
from xbus.http.request_tags import CONTENT_TYPE, accepted, one_value, tags_of, token_of
from xbus.http.tails import Follower, HeldAnswer, TailAnswer, TailQuestion
from xbus.json_views import has_one_name_twice
from xbus.reader.batch import read_event
from xbus.rpc.codec import Value, pack
from xbus.rpc.messages import (
    CheckpointAnswer,
    ClaimedBatchMap,
    EnvelopeOptionsMap,
    MeasuredSubscriptions,
    RangesAnswer,
    SubscriptionHealthMap,
)
from xbus.rpc.shapes import AnswerReader


def _object(properties: Mapping[str, object]) -> dict[str, object]:
    return {"type": "object", "required": [*properties], "properties": dict(properties)}


def _list(of: Mapping[str, object]) -> dict[str, object]:
    return {"type": "array", "items": dict(of)}


TEXT = {"type": "string"}
TEXT_OR_NULL = {"type": ["string", "null"]}
WHOLE = {"type": "integer", "minimum": 0}
SECONDS = {"type": "number", "exclusiveMinimum": 0, "description": "Seconds."}

RECEIPT = _object({"envelope_id": TEXT, "position": WHOLE, "events": WHOLE, "items": WHOLE, "hash": TEXT})

_FACTS: Mapping[str, object] = {
    "envelope_id": TEXT,
    "event_id": TEXT,
    "type": TEXT,
    "emitter": TEXT,
    "position": WHOLE,
    "event": WHOLE,
    "sealed_at": {"type": "string", "format": "date-time"},
    "key": TEXT_OR_NULL,
    "ordering_key": TEXT_OR_NULL,
    "partition_key": TEXT_OR_NULL,
    "headers": {"type": "object"},
}

BATCH = _object(
    {
        "checkpoint": {**TEXT, "description": "Settles the batch."},
        "range": WHOLE,
        "from": {**TEXT, "description": "The place at which it begins."},
        "to": {**TEXT, "description": "The place at which it ends."},
        "repeated": {"type": "boolean", "description": "Whether it was handed out before."},
        "events": _list(_object({**_FACTS, "first_index": WHOLE, "items": _list({})})),
    }
)

LEASE = _object({"lease": SECONDS})

RANGES = _object({"ranges": _list(WHOLE), "give_up": _list(WHOLE)})

_MOMENT_OR_NULL = {"type": ["string", "null"], "format": "date-time"}

SUBSCRIPTIONS = _object(
    {
        "subscriptions": _list(
            _object(
                {
                    "name": TEXT,
                    "state": {"enum": ["healthy", "failed", "paused", "stopped"]},
                    "events": {**WHOLE, "description": "Events that wait for it, counted up to 10,000."},
                    "waits_since": _MOMENT_OR_NULL,
                    "failures": WHOLE,
                    "failing_since": _MOMENT_OR_NULL,
                    "retry_at": _MOMENT_OR_NULL,
                    "code": TEXT_OR_NULL,
                    "error": TEXT_OR_NULL,
                    "parked_batches": WHOLE,
                }
            )
        )
    }
)


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
    start = EventStart(request.path_params["type"], tags=event_tags(None, tags.partition_key))
    options = envelope_options(tags.ordering_key, tags.key, tags.headers)
    with closing(gateway.body(request)) as body:
        items = items_of(one_value(request.headers, CONTENT_TYPE), body, notes.append)
        return await send(line, start, items, options), {NOTE: ascii("; ".join(notes))[1:-1]} if notes else {}


async def _post_envelope(gateway: Gateway, request: Request) -> Response:
    receipt, notes = await _sent(gateway, request, publish)
    return JsonAnswer(receipt_map(receipt), HTTPStatus.CREATED, notes)


async def _ask(gateway: Gateway, request: Request) -> Response:
    (receipt, reply), notes = await _sent(gateway, request, ask)
    headers = {"x-xbus-envelope-id": receipt.envelope_id, "x-xbus-position": str(receipt.position), **notes}
    if batches.MSGPACK in request.headers.get("accept", ""):
        return Response(pack(reply), headers=headers, media_type=batches.MSGPACK)
    return Response(f"{_json(reply)}\n", headers=headers, media_type="application/json")


def _json(reply: Value) -> str:
    try:
        if not has_one_name_twice(reply):
            return json.dumps(reply, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        pass
    raise Refused(
        "the reply has values that JSON has not, and the envelope is sealed",
        f"ask with Accept: {batches.MSGPACK}",
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


LAST_EVENT_ID = "last-event-id"

PROGRAM = {
    "program": "The name of the program, where several share the reader. Without it the token has one program alone."
}

BATCH_OPTIONS = {
    "wait": "How long to wait while nothing is there, such as 20s; at most 30s. By default it does not wait.",
    "max_items": "The most items, within what the reader allows.",
    "max_bytes": "The bytes at which the batch ends, within what the reader allows.",
    "done": "The checkpoint of the batch before, which this settles first.",
    **PROGRAM,
}

TAIL_OPTIONS = {
    "from": "Where to begin: a place as 1234 or 1234:0:500, a moment in ISO 8601, -1h, oldest, or head, the default.",
    "key": "The partition key of the wanted events, or the ordering key of those without one.",
}

READING_REFUSALS = ("bad_request", "token_missing", "reader_not_allowed", "lease_lost", "journal_unavailable")

COPIES = 3
"""The copies of a batch that are in memory while it is written. Counting fewer takes more memory than is said."""

_CHECKPOINT = AnswerReader("xbus.checkpoint", CheckpointAnswer)
_RANGES = AnswerReader("xbus.renew_ranges", RangesAnswer)


async def _get_batch(gateway: Gateway, request: Request) -> Response:
    asked = options_of(request.query_params, BATCH_OPTIONS)
    token = token_of(request.headers)
    done = batches.CheckpointTicket.parse(asked["done"]) if "done" in asked else None
    wanted = batches.BatchRequest(
        request.path_params["reader"],
        token,
        batches.program_id(token, asked.get("program", "")) if done is None else done.program,
        batches.seconds_of(asked.get("wait", "0")),
        _bounds(asked, gateway.settings.max_document_bytes),
        done,
    )

    async def is_gone() -> bool:
        return gateway.tails.is_stopping or await request.is_disconnected()

    answer = await batches.next_batch(gateway.back, wanted, is_gone)
    if answer["batch"] is None:
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"x-xbus-lease": f"{answer['lease']:g}"})
    media_type = accepted(request.headers.get("accept", ""), batches.BATCH_FORMATS)
    ticket = batches.CheckpointTicket.of(answer["batch"], wanted.program)
    return _written(gateway, answer["batch"], ticket, media_type, answer["lease"])


def _written(
    gateway: Gateway, batch: ClaimedBatchMap, ticket: batches.CheckpointTicket, media_type: str, lease: float
) -> Response:
    events = [read_event(told) for told in batch["events"]]
    room = gateway.room.held(COPIES * sum(len(told["data"]) for told in batch["events"]))
    try:
        body = batches.batch_body(media_type, batch, events, ticket)
    except BaseException:
        room.close()
        raise
    headers = {
        "x-xbus-checkpoint": str(ticket),
        "x-xbus-lease": f"{lease:g}",
        "x-xbus-repeated": "true" if batch["repeated"] else "false",
    }
    return HeldAnswer(body, media_type, headers, room)


async def _post_checkpoint(gateway: Gateway, request: Request) -> Response:
    ticket, place = _checkpoint(await gateway.json(request))
    token = token_of(request.headers)
    settled = ticket.settled(place)
    answer = await gateway.back.call("xbus.checkpoint", token, ticket.program, *settled, request.path_params["reader"])
    lease = _CHECKPOINT.read(answer)["lease"]
    return JsonAnswer({"lease": int(lease) if lease == int(lease) else lease})


def _checkpoint(told: object) -> tuple[batches.CheckpointTicket, list[int] | None]:
    ticket = told.get("checkpoint") if isinstance(told, dict) else None
    place = told.get("place") if isinstance(told, dict) else None
    if not isinstance(ticket, str) or not isinstance(place, str | None):
        raise Refused(
            "the body has no checkpoint",
            'send {"checkpoint": "…"} as it came with the batch; and "place": "1234:0:3" to settle it in part',
            code="bad_body",
        )
    return batches.CheckpointTicket.parse(ticket), None if place is None else batches.parse_place(place)


async def _post_renewal(gateway: Gateway, request: Request) -> Response:
    token, program = _caller(request)
    answer = await gateway.back.call("xbus.renew_ranges", token, program, request.path_params["reader"])
    told = _RANGES.read(answer)
    return JsonAnswer({"ranges": [number for number, _ in told["ranges"]], "give_up": told["give_up"]})


async def _post_farewell(gateway: Gateway, request: Request) -> Response:
    token, program = _caller(request)
    await gateway.back.call("xbus.leave_ranges", token, program, request.path_params["reader"])
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _get_tail(gateway: Gateway, request: Request) -> Response:
    asked = options_of(request.query_params, TAIL_OPTIONS)
    question = TailQuestion(token_of(request.headers), request.path_params["type"], asked.get("key"))
    last = one_value(request.headers, LAST_EVENT_ID)
    start = batches.start_after(last) if last else batches.start_of(asked.get("from", "head"), gateway.clock.now())
    first = await gateway.tails.look(question, start)
    return TailAnswer(Follower(gateway.tails, question, first))


def options_of(given: QueryParams, known: Mapping[str, str]) -> dict[str, str]:
    """Read the options of a query.

    Raises:
        Refused: one is unknown, or comes twice (``bad_request``).
    """
    found: dict[str, str] = {}
    for name, value in given.multi_items():
        if name not in known:
            raise Refused(f"there is no option {name!r:.60}", f"know {', '.join(known)}", code="bad_request")
        if name in found:
            raise Refused(f"the option {name} comes twice", "give it once", code="bad_request")
        found[name] = value
    return found


def _caller(request: Request) -> tuple[str, str]:
    token = token_of(request.headers)
    return token, batches.program_id(token, options_of(request.query_params, PROGRAM).get("program", ""))


def _bounds(asked: Mapping[str, str], most_bytes: int) -> dict[str, Value]:
    bounds: dict[str, Value] = {"max_bytes": most_bytes}
    for name in asked.keys() & {"max_items", "max_bytes"}:
        text = asked[name]
        if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text)):
            raise Refused(f"{name} is {text!r:.40}", "give a whole number from 1 on", code="bad_request")
        bounds[name] = min(int(text), most_bytes) if name == "max_bytes" else int(text)
    return bounds


READING_OPERATIONS = (
    Operation(
        "GET",
        "/v1/readers/{reader}/batch",
        "Get the next batch of a reader. A batch that is not settled is delivered again.",
        _get_batch,
        {200: "The batch.", 204: "Nothing is there."},
        (*READING_REFUSALS, "reader_not_ready", "place_not_in_batch", "gateway_full"),
        query=BATCH_OPTIONS,
        produces={batches.JSON: BATCH, batches.NDJSON: {}, batches.MSGPACK: {}},
    ),
    Operation(
        "POST",
        "/v1/readers/{reader}/checkpoint",
        "Settle a batch, or its beginning: these items are never delivered again.",
        _post_checkpoint,
        {200: "It is settled, durably."},
        (*READING_REFUSALS, "bad_body", "body_too_large", "place_not_in_batch"),
        (batches.JSON,),
        produces={batches.JSON: LEASE},
    ),
    Operation(
        "POST",
        "/v1/readers/{reader}/renew",
        "Keep the ranges of a program while it works on a batch for long.",
        _post_renewal,
        {200: "The ranges that it has, and those that it is to give up."},
        READING_REFUSALS,
        query=PROGRAM,
        produces={batches.JSON: RANGES},
    ),
    Operation(
        "POST",
        "/v1/readers/{reader}/leave",
        "Give the ranges of a program up: others get them at once.",
        _post_farewell,
        {204: "They are free."},
        READING_REFUSALS,
        query=PROGRAM,
    ),
    Operation(
        "GET",
        "/v1/types/{type}/tail",
        "Follow the events of a type by server-sent events.",
        _get_tail,
        {200: "Each item as an event, whose id is its place. Comments are signs of life."},
        ("bad_request", "token_missing", "type_not_read", "type_unknown", "place_beyond_end", "journal_unavailable"),
        parameters={"Last-Event-ID": "Goes on behind this event."},
        query=TAIL_OPTIONS,
        produces={"text/event-stream": {}},
    ),
)
