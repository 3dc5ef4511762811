"""Routemaster's publishing half: its clients push events into topics unchanged. A topic is an event type.

The source of its rules is the documentation of deliveroo/routemaster, "API". Where its server differs from that, this
follows the server: names have up to 64 letters.
"""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from xbus.emitter.envelope import envelope_options
from xbus.emitter.event import EventStart
from xbus.errors import Refused, XbusError
from xbus.http.bodies import parse_json
from xbus.http.dialects.gateway import Gateway, Operation
from xbus.http.problems import problem
from xbus.http.publishing import publish
from xbus.http.request_tags import token_of
from xbus.rpc.items import item_bytes

TYPES = ("create", "update", "delete", "noop")
FIELDS = {"type", "url", "timestamp", "data"}
LONGEST_URL = 1024
LARGEST_DATA = 64
"""Bytes of ``data`` in msgpack."""

PROBLEM_CODE = "x-xbus-problem"
"""The header with our code: the protocol has no bodies."""

_TOPIC = re.compile(r"[a-z_]{1,64}")

_STATUSES: Mapping[str, HTTPStatus] = {
    "bad_body": HTTPStatus.BAD_REQUEST,
    "bad_items": HTTPStatus.BAD_REQUEST,
    "body_too_large": HTTPStatus.BAD_REQUEST,
    "item_too_large": HTTPStatus.BAD_REQUEST,
    "type_not_allowed": HTTPStatus.FORBIDDEN,
    "unknown_type": HTTPStatus.FORBIDDEN,
}
"""The statuses that differ from those of our own dialect: another publishes to a topic, or nobody may."""


async def _push(gateway: Gateway, request: Request) -> Response:
    try:
        line = await gateway.line(request)
        topic = request.path_params["name"]
        if not _TOPIC.fullmatch(topic):
            raise _bad("a topic is called by 1 to 64 lower-case letters and underscores")
        body = gateway.body(request)
        try:
            event = read_event(parse_json(await body.json_text(), "the body"), gateway.clock.now())
        finally:
            body.close()

        async def items() -> AsyncIterator[bytes]:
            yield item_bytes(event.fields)

        await publish(line, EventStart(topic), items(), envelope_options(None, None, {"source_time": event.at}))
    except XbusError as error:
        return _empty(error)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _pulse(gateway: Gateway, request: Request) -> Response:
    try:
        await gateway.front.check(token_of(request.headers))
    except XbusError as error:
        return _empty(error)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """An event of a topic.

    Args:
        fields: as its publisher sent them, with its timestamp.
        at: the moment of its timestamp.
    """

    fields: Mapping[str, object]
    at: datetime


def read_event(found: object, now: datetime) -> TopicEvent:
    """Check an event, and give it its timestamp where it has none.

    Args:
        found: the body of the request.
        now: the moment of the request.

    Raises:
        Refused: it is none (``bad_event``).
    """
    if not isinstance(found, dict):
        raise _bad("the event is no map")
    if extra := set(found) - FIELDS:
        raise _bad(f"the event has the extra field {min(extra):.40}")
    if found.get("type") not in TYPES:
        raise _bad(f"the type is none of {', '.join(TYPES)}")
    url = found.get("url")
    if not isinstance(url, str) or not url.startswith("https://") or len(url) > LONGEST_URL:
        raise _bad(f"the url is no address of https with up to {LONGEST_URL} characters")
    milliseconds = found.get("timestamp")
    if milliseconds is None:
        milliseconds = int(now.timestamp() * 1000)
    if type(milliseconds) is not int or not 0 <= milliseconds < LATEST:
        raise _bad("the timestamp is no number of milliseconds since 1970")
    fields = {"type": found["type"], "url": url, "timestamp": milliseconds}
    if found.get("data") is not None:
        if len(item_bytes(found["data"])) > LARGEST_DATA:
            raise _bad(f"the data takes more than {LARGEST_DATA} bytes of msgpack")
        fields["data"] = found["data"]
    return TopicEvent(fields, datetime.fromtimestamp(milliseconds / 1000, UTC))


LATEST = 253_402_300_800_000
"""The end of the year 9999, in milliseconds since 1970."""


def _bad(cause: str) -> Refused:
    return Refused(cause, "correct it", code="bad_event")


def _empty(error: XbusError) -> Response:
    """Answer an error by its status alone, as the protocol wants, and by our code in a header."""
    told = problem(error)
    status = _STATUSES.get(error.code, HTTPStatus(told.status_code))
    kept = {name: value for name, value in told.headers.items() if name in ("retry-after", "www-authenticate")}
    return Response(status_code=status, headers={**kept, PROBLEM_CODE: error.code})


OPERATIONS = (
    Operation(
        "POST",
        "/topics/{name}",
        "Push an event into a topic, as to Routemaster.",
        _push,
        {204: "The event is durable."},
        ("bad_event", "token_missing", "type_not_allowed", "slow_down", "journal_unavailable"),
        ("application/json",),
    ),
    Operation(
        "GET",
        "/pulse",
        "See whether events can be pushed, as at Routemaster.",
        _pulse,
        {204: "They can."},
        ("token_missing", "timed_out"),
    ),
)
