"""Our own dialect for programs that read: batches of readers, and the tails of event types."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from xbus.errors import Refused
from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.schemas import BATCH, LEASE, RANGES
from xbus.http.reading import (
    BATCH_FORMATS,
    JSON,
    MSGPACK,
    NDJSON,
    BatchRequest,
    CheckpointTicket,
    Follower,
    HeldAnswer,
    TailAnswer,
    TailQuestion,
    batch_body,
    next_batch,
    parse_place,
    program_id,
    seconds_of,
    start_after,
    start_of,
)
from xbus.http.request_tags import accepted, one_value, token_of
from xbus.reader.batch import read_event
from xbus.rpc.codec import Value
from xbus.rpc.messages import CheckpointAnswer, ClaimedBatchMap, RangesAnswer
from xbus.rpc.shapes import AnswerReader

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

REFUSALS = ("bad_request", "token_missing", "reader_not_allowed", "lease_lost", "journal_unavailable")

COPIES = 3
"""The copies of a batch that are in memory while it is written. Counting fewer takes more memory than is said."""

_CHECKPOINT = AnswerReader("xbus.checkpoint", CheckpointAnswer)
_RANGES = AnswerReader("xbus.renew_ranges", RangesAnswer)


async def _get_batch(gateway: Gateway, request: Request) -> Response:
    asked = options_of(request.query_params, BATCH_OPTIONS)
    token = token_of(request.headers)
    done = CheckpointTicket.parse(asked["done"]) if "done" in asked else None
    wanted = BatchRequest(
        request.path_params["reader"],
        token,
        program_id(token, asked.get("program", "")) if done is None else done.program,
        seconds_of(asked.get("wait", "0")),
        _bounds(asked, gateway.settings.max_document_bytes),
        done,
    )

    async def is_gone() -> bool:
        return gateway.tails.is_stopping or await request.is_disconnected()

    answer = await next_batch(gateway.back, wanted, is_gone)
    if answer["batch"] is None:
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"x-xbus-lease": f"{answer['lease']:g}"})
    media_type = accepted(request.headers.get("accept", ""), BATCH_FORMATS)
    ticket = CheckpointTicket.of(answer["batch"], wanted.program)
    return _written(gateway, answer["batch"], ticket, media_type, answer["lease"])


def _written(
    gateway: Gateway, batch: ClaimedBatchMap, ticket: CheckpointTicket, media_type: str, lease: float
) -> Response:
    events = [read_event(told) for told in batch["events"]]
    room = gateway.room.held(COPIES * sum(len(told["data"]) for told in batch["events"]))
    try:
        body = batch_body(media_type, batch, events, ticket)
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
    body = gateway.body(request)
    try:
        ticket, place = _checkpoint(await body.json())
    finally:
        body.close()
    token = token_of(request.headers)
    settled = ticket.settled(place)
    answer = await gateway.back.call("xbus.checkpoint", token, ticket.program, *settled, request.path_params["reader"])
    lease = _CHECKPOINT.read(answer)["lease"]
    return JsonAnswer({"lease": int(lease) if lease == int(lease) else lease})


def _checkpoint(told: object) -> tuple[CheckpointTicket, list[int] | None]:
    ticket = told.get("checkpoint") if isinstance(told, dict) else None
    place = told.get("place") if isinstance(told, dict) else None
    if not isinstance(ticket, str) or not isinstance(place, str | None):
        raise Refused(
            "the body has no checkpoint",
            'send {"checkpoint": "…"} as it came with the batch; and "place": "1234:0:3" to settle it in part',
            code="bad_body",
        )
    return CheckpointTicket.parse(ticket), None if place is None else parse_place(place)


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
    start = start_after(last) if last else start_of(asked.get("from", "head"), gateway.clock.now())
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
    return token, program_id(token, options_of(request.query_params, PROGRAM).get("program", ""))


def _bounds(asked: Mapping[str, str], most_bytes: int) -> dict[str, Value]:
    bounds: dict[str, Value] = {"max_bytes": most_bytes}
    for name in asked.keys() & {"max_items", "max_bytes"}:
        text = asked[name]
        if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text)):
            raise Refused(f"{name} is {text!r:.40}", "give a whole number from 1 on", code="bad_request")
        bounds[name] = min(int(text), most_bytes) if name == "max_bytes" else int(text)
    return bounds


OPERATIONS = (
    Operation(
        "GET",
        "/v1/readers/{reader}/batch",
        "Get the next batch of a reader. A batch that is not settled is delivered again.",
        _get_batch,
        {200: "The batch.", 204: "Nothing is there."},
        (*REFUSALS, "reader_not_ready", "place_not_in_batch", "gateway_full"),
        query=BATCH_OPTIONS,
        produces={JSON: BATCH, NDJSON: {}, MSGPACK: {}},
    ),
    Operation(
        "POST",
        "/v1/readers/{reader}/checkpoint",
        "Settle a batch, or its beginning: these items are never delivered again.",
        _post_checkpoint,
        {200: "It is settled, durably."},
        (*REFUSALS, "bad_body", "body_too_large", "place_not_in_batch"),
        (JSON,),
        produces={JSON: LEASE},
    ),
    Operation(
        "POST",
        "/v1/readers/{reader}/renew",
        "Keep the ranges of a program while it works on a batch for long.",
        _post_renewal,
        {200: "The ranges that it has, and those that it is to give up."},
        REFUSALS,
        query=PROGRAM,
        produces={JSON: RANGES},
    ),
    Operation(
        "POST",
        "/v1/readers/{reader}/leave",
        "Give the ranges of a program up: others get them at once.",
        _post_farewell,
        {204: "They are free."},
        REFUSALS,
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
