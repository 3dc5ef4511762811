"""Routemaster's own protocol, for clients that were written for it. A topic is an event type.

The source of its rules is the documentation of deliveroo/routemaster, "API". If its server or its published clients
differ from the documentation, the gateway serves both.

Face: ``OPERATIONS``.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import unquote, urlunsplit

from starlette.requests import Request
from starlette.responses import Response

from xbus.emitter.envelope import EventStart, envelope_options
from xbus.errors import Refused, XbusError
from xbus.http.bodies import off_loop, read_json
from xbus.http.dialects.gateway import Answer, Gateway, JsonAnswer, Operation
from xbus.http.front import publish
from xbus.http.problems import problem
from xbus.http.request_tags import token_of
from xbus.http.targets import https_parts
from xbus.rpc.items import item_bytes
from xbus.rpc.messages import ClientTokenMap, SubscriberMap, SubscriptionWishMap, TopicMap
from xbus.rpc.shapes import AnswerReader

PROBLEM_CODE = "x-xbus-problem"
"""The header with our code: the protocol has no bodies."""

STATUSES: Mapping[str, HTTPStatus] = {
    "bad_body": HTTPStatus.BAD_REQUEST,
    "bad_items": HTTPStatus.BAD_REQUEST,
    "body_too_large": HTTPStatus.BAD_REQUEST,
    "item_too_large": HTTPStatus.BAD_REQUEST,
    "type_not_allowed": HTTPStatus.FORBIDDEN,
}
"""The statuses that differ from those of our own dialect."""


def nothing() -> Response:
    """Answer that it is done."""
    return Response(status_code=HTTPStatus.NO_CONTENT)


def emptily(answer: Answer) -> Answer:
    """Let an operation tell its errors without a body."""

    async def answered(gateway: Gateway, request: Request) -> Response:
        try:
            return await answer(gateway, request)
        except XbusError as error:
            told = problem(error)
            status = STATUSES.get(error.code, HTTPStatus(told.status_code))
            kept = {name: value for name, value in told.headers.items() if name in ("retry-after", "www-authenticate")}
            return Response(status_code=status, headers={**kept, PROBLEM_CODE: error.code})

    return answered


TYPES = ("create", "update", "delete", "noop")
FIELDS = {"type", "url", "timestamp", "data"}
LONGEST_URL = 1024

LATEST = 253_402_300_800_000
"""The end of the year 9999, in milliseconds since 1970."""

_TOPIC = re.compile(r"[a-z_]{1,64}")


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """An event of a topic.

    Args:
        fields: as its publisher sent them, with its timestamp.
        at: the moment of its timestamp.
    """

    fields: Mapping[str, object]
    at: datetime


def check_topic(name: object) -> str:
    """Let the name of a topic pass.

    Raises:
        Refused: the name has another form (``bad_event``).
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise bad("a topic is called by 1 to 64 lower-case letters and underscores")
    return name


def read_event(topic: str, found: object, now: datetime, data_bytes: int) -> TopicEvent:
    """Check an event, and give it its timestamp where it has none.

    Args:
        topic: the name of its topic.
        found: the body of the request.
        now: the moment of the request.
        data_bytes: the most bytes of its data in msgpack.

    Raises:
        Refused: it is none (``bad_event``).
    """
    if not isinstance(found, dict):
        raise bad("the event is no map")
    # The published client for Go sends the topic in the event, too.
    if found.get("topic", topic) != topic:
        raise bad("the topic of the event is not that of the path")
    if extra := set(found) - {*FIELDS, "topic"}:
        raise bad(f"the event has the extra field {min(extra):.40}")
    if found.get("type") not in TYPES:
        raise bad(f"the type is not one of {', '.join(TYPES)}")
    url = found.get("url")
    if not isinstance(url, str) or https_parts(url) is None or len(url) > LONGEST_URL:
        raise bad(f"the url is no address of https without password, with up to {LONGEST_URL} characters")
    milliseconds = found.get("timestamp")
    if milliseconds is None:
        milliseconds = int(now.timestamp() * 1000)
    if type(milliseconds) is not int or not 0 <= milliseconds < LATEST:
        raise bad("the timestamp is no number of milliseconds since 1970")
    fields = {"type": found["type"], "url": url, "timestamp": milliseconds}
    if found.get("data") is not None:
        if len(item_bytes(found["data"])) > data_bytes:
            raise bad(f"the data takes more than {data_bytes} bytes of msgpack")
        fields["data"] = found["data"]
    return TopicEvent(fields, datetime.fromtimestamp(milliseconds / 1000, UTC))


def bad(cause: str) -> Refused:
    """Refuse what is no event, topic or subscription."""
    return Refused(cause, "correct it", code="bad_event")


BUSY_SECONDS = 1.0
"""Seconds that /pulse/scaling takes while the bus is behind: autoscalers measure them."""

_WAITING = AnswerReader("xbus.count_waiting", int)


@emptily
async def _pulse(gateway: Gateway, request: Request) -> Response:
    await gateway.front.check(token_of(request.headers))
    return nothing()


@emptily
async def _scaling(gateway: Gateway, request: Request) -> Response:
    most = gateway.settings.scaling_backlog
    if _WAITING.read(await gateway.front.call(token_of(request.headers), "xbus.count_waiting", most)) >= most:
        await asyncio.sleep(BUSY_SECONDS)
    return nothing()


async def _health(gateway: Gateway, request: Request) -> Response:
    return JsonAnswer({"pong": gateway.clock.now().isoformat(timespec="seconds")})


HEALTH = (
    "See whether the gateway answers, as at Routemaster. /readyz sees whether it reaches the broker.",
    _health,
    {200: "A map of pong, the moment."},
)

PULSE_OPERATIONS = (
    *(Operation("GET", path, *HEALTH, needs_token=False) for path in ("/health", "/health/ping", "/health/ping.json")),
    Operation(
        "GET",
        "/pulse",
        "See whether events can be pushed, as at Routemaster.",
        _pulse,
        {204: "They can."},
        ("token_missing", "timed_out"),
    ),
    Operation(
        "GET",
        "/pulse/scaling",
        "See whether recipients keep up, as at Routemaster: else the answer takes a second.",
        _scaling,
        {204: "At once: they do; after a second: they do not."},
        ("token_missing", "timed_out", "journal_unavailable"),
    ),
)


_TOPICS = AnswerReader("xbus.list_topics", list[TopicMap])

CLAIMED = ("unknown_type", "type_not_allowed")
"""The refusals after which a publisher may get the topic for itself."""


@emptily
async def _push(gateway: Gateway, request: Request) -> Response:
    line = await gateway.line(request)
    topic = check_topic(request.path_params["name"])
    found = await gateway.json(request)
    event = read_event(topic, found, gateway.clock.now(), gateway.settings.topic_data_bytes)
    item = item_bytes(event.fields)

    async def items() -> AsyncIterator[bytes]:
        yield item

    async def send() -> None:
        await publish(line, EventStart(topic), items(), envelope_options(None, None, {"source_time": event.at}))

    try:
        await send()
    except Refused as error:
        if error.code not in CLAIMED:
            raise
        try:
            await gateway.front.call(token_of(request.headers), "xbus.claim_topic", topic)
        except Refused as refusal:
            raise refusal from error
        await send()
    gateway.counters.pushed(topic)
    return nothing()


@emptily
async def _list_topics(gateway: Gateway, request: Request) -> Response:
    return JsonAnswer(_TOPICS.read(await gateway.front.call(token_of(request.headers), "xbus.list_topics")))


@emptily
async def _remove(gateway: Gateway, request: Request) -> Response:
    topic = check_topic(request.path_params["name"])
    await gateway.front.call(token_of(request.headers), "xbus.remove_topic", topic)
    return nothing()


REMOVING = (
    "Remove a topic of which the client is the publisher, as at Routemaster.",
    _remove,
    {204: "There is no such topic any more."},
    ("bad_event", "token_missing", "type_not_allowed", "type_in_use", "unknown_type"),
)

TOPIC_OPERATIONS = (
    Operation(
        "POST",
        "/topics/{name}",
        "Push an event into a topic, as to Routemaster. The first push makes the topic.",
        _push,
        {204: "The event is durable."},
        ("bad_event", "token_missing", "client_wanted", "type_not_allowed", "slow_down", "journal_unavailable"),
        ("application/json",),
    ),
    Operation(
        "GET",
        "/topics",
        "List the topics, with the publisher and the number of events of each, as at Routemaster.",
        _list_topics,
        {200: "A list of maps of name, publisher and events."},
        ("token_missing", "journal_unavailable"),
    ),
    # The document has the first path, the server and the client for Ruby the second one.
    Operation("DELETE", "/topic/{name}", *REMOVING),
    Operation("DELETE", "/topics/{name}", *REMOVING),
)


SUBSCRIPTION_FIELDS = {"topics", "callback", "uuid", "timeout", "max"}

TIMEOUT = 500
"""Milliseconds that a batch waits for more events, unless the subscriber says otherwise."""

MOST_EVENTS = 100
"""The most events of a batch, unless the subscriber says otherwise."""

_NAMED = re.compile(r"https://(?P<user>[A-Za-z0-9._~%-]+)@(?P<rest>.+)")
"""An address with a user name, and without a password."""

_SUBSCRIBERS = AnswerReader("xbus.list_subscribers", list[SubscriberMap])


def read_subscription(found: object) -> SubscriptionWishMap:
    """Check a subscription, and give it what it does not say.

    Args:
        found: the body of the request.

    Raises:
        Refused: it is none (``bad_event``).
    """
    if not isinstance(found, dict):
        raise bad("the subscription is no map")
    if extra := set(found) - SUBSCRIPTION_FIELDS:
        raise bad(f"the subscription has the extra field {min(extra):.40}")
    topics = found.get("topics")
    if not isinstance(topics, list):
        raise bad("the topics are no list of names")
    uuid = found.get("uuid") or ""
    if not isinstance(uuid, str):
        raise bad("the uuid is no text")
    url, user = _callback(found.get("callback"))
    return {
        "topics": [*map(check_topic, topics)],
        "url": url,
        "secret": uuid or user,
        "timeout": _number(found, "timeout", TIMEOUT),
        "max": _number(found, "max", MOST_EVENTS),
    }


def _callback(found: object) -> tuple[str, str]:
    """Check the address to be called, and give it with the user name of the call: the URL of `rtm sub add` has one."""
    user, address = "", found
    if isinstance(found, str) and (named := _NAMED.fullmatch(found)):
        user, address = unquote(named["user"]), f"https://{named['rest']}"
    parts = https_parts(address)
    if parts is None:
        raise bad("the callback is no address of https, or has a password")
    return urlunsplit(parts), user


def _number(found: dict[object, object], name: str, default: int) -> int:
    """Give a number; the broker refuses one beyond its bounds."""
    value = found.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise bad(f"{name} is no whole number")
    return value


@emptily
async def _subscribe(gateway: Gateway, request: Request) -> Response:
    token = token_of(request.headers)
    await gateway.front.check(token)
    wish = read_subscription(await gateway.json(request))
    await gateway.targets.check(wish["url"])
    await gateway.front.call(token, "xbus.subscribe", wish)
    return nothing()


@emptily
async def _unsubscribe(gateway: Gateway, request: Request) -> Response:
    name = request.path_params.get("name")
    topic = None if name is None else check_topic(name)
    await gateway.front.call(token_of(request.headers), "xbus.unsubscribe", topic)
    return nothing()


@emptily
async def _list_subscriptions(gateway: Gateway, request: Request) -> Response:
    found = _SUBSCRIBERS.read(await gateway.front.call(token_of(request.headers), "xbus.list_subscribers"))
    return JsonAnswer([*map(_told, found)])


def _told(each: SubscriberMap) -> dict[str, object]:
    return {
        "subscriber": each["name"],
        "uuid": each["secret"],
        "callback": each["url"],
        "max_events": each["max"],
        "timeout": each["timeout"],
        "topics": each["topics"],
        "events": {"sent": each["sent"], "queued": each["queued"], "oldest": each["oldest"]},
    }


SUBSCRIBING = (
    "Subscribe the client to topics, as to Routemaster, and unsubscribe it from all others.",
    _subscribe,
    {204: "It is subscribed to these topics."},
    (
        "bad_event",
        "bad_subscription",
        "callback_not_allowed",
        "client_wanted",
        "token_missing",
        "type_not_allowed",
        "unknown_type",
    ),
    ("application/json",),
)

UNSUBSCRIBING = (
    "Unsubscribe the client from all topics, as at Routemaster.",
    _unsubscribe,
    {204: "It is subscribed to nothing."},
    ("token_missing", "not_subscribed"),
)

LEAVING = (
    "Unsubscribe the client from a topic, as at Routemaster.",
    _unsubscribe,
    {204: "It is not subscribed to this topic."},
    ("bad_event", "token_missing", "not_subscribed"),
)

LISTING = (
    "List the subscriptions of clients, as at Routemaster.",
    _list_subscriptions,
    {200: "A list of maps of subscriber, uuid, callback, max_events, timeout, topics and events."},
    ("token_missing", "type_not_allowed"),
)

# The document has the first path of each pair, the server has both.
SUBSCRIPTION_OPERATIONS = (
    Operation("POST", "/subscription", *SUBSCRIBING),
    Operation("POST", "/subscriber", *SUBSCRIBING),
    Operation("DELETE", "/subscriber", *UNSUBSCRIBING),
    Operation("DELETE", "/subscribers", *UNSUBSCRIBING),
    Operation("DELETE", "/subscriber/topics/{name}", *LEAVING),
    Operation("DELETE", "/subscribers/topics/{name}", *LEAVING),
    Operation("GET", "/subscriptions", *LISTING),
    Operation("GET", "/subscribers", *LISTING),
)


NAME_BYTES = 6
"""Bytes of the name of a client that gets one from us. Fewer let two clients get the same name."""

_TOKENS = AnswerReader("xbus.list_tokens", list[ClientTokenMap])
_TOKEN = AnswerReader("xbus.new_token", str)


@emptily
async def _list_tokens(gateway: Gateway, request: Request) -> Response:
    found = _TOKENS.read(await gateway.front.call(token_of(request.headers), "xbus.list_tokens"))
    if not found:
        return nothing()
    return JsonAnswer([{"name": each["client"], "token": each["hash"]} for each in found])


@emptily
async def _add(gateway: Gateway, request: Request) -> Response:
    token = token_of(request.headers)
    await gateway.front.check(token)
    with closing(gateway.body(request)) as body:
        text = await body.json_text()
        # As the document's own example for curl asks, whose client has no name.
        wanted = await off_loop(read_json, text) if text else {"name": f"client-{secrets.token_hex(NAME_BYTES)}"}
    if not isinstance(wanted, dict) or not isinstance(wanted.get("name"), str):
        raise Refused("the body is no map with a name", "send the name of the client", code="bad_body")
    chosen = wanted.get("token")
    if not isinstance(chosen, str | None):
        raise Refused("the token is no text", "send a text, or no token", code="bad_token")
    made = _TOKEN.read(await gateway.front.call(token, "xbus.new_token", wanted["name"], chosen))
    return JsonAnswer({"name": wanted["name"], "token": made}, HTTPStatus.CREATED)


@emptily
async def _revoke(gateway: Gateway, request: Request) -> Response:
    await gateway.front.call(token_of(request.headers), "xbus.revoke_token", request.path_params["token"])
    return nothing()


TOKEN_OPERATIONS = (
    Operation(
        "GET",
        "/api_tokens",
        "List the API tokens of clients, as at Routemaster, with their hashes in the place of the tokens.",
        _list_tokens,
        {200: "A list of maps of name and token, which is the hash.", 204: "There is none."},
        ("token_missing", "clients_not_allowed"),
    ),
    Operation(
        "POST",
        "/api_tokens",
        "Make an API token for a client, as at Routemaster. Without a body the client gets a name from us.",
        _add,
        {201: "A map of name and token. Nobody can read the token again."},
        ("token_missing", "clients_not_allowed", "bad_body", "bad_name", "bad_token", "name_taken", "token_taken"),
        ("application/json",),
    ),
    Operation(
        "DELETE",
        "/api_tokens/{token}",
        "Revoke an API token, or the one with this hash, as at Routemaster.",
        _revoke,
        {204: "There is no such token any more."},
        ("token_missing", "clients_not_allowed"),
    ),
)


OPERATIONS = tuple(
    # The protocol has no bodies for errors.
    replace(operation, explains=False)
    for operation in (*TOPIC_OPERATIONS, *SUBSCRIPTION_OPERATIONS, *TOKEN_OPERATIONS, *PULSE_OPERATIONS)
)
