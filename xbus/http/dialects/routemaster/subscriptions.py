"""Subscribe to topics, unsubscribe, and list subscriptions."""

import re
from urllib.parse import unquote, urlunsplit

from starlette.requests import Request
from starlette.responses import Response

from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.routemaster.answers import emptily, nothing
from xbus.http.dialects.routemaster.events import bad, check_topic
from xbus.http.request_tags import token_of
from xbus.http.targets import https_parts
from xbus.rpc.provisioning.messages import SubscriberMap, SubscriptionWishMap
from xbus.rpc.shapes import AnswerReader

FIELDS = {"topics", "callback", "uuid", "timeout", "max"}

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
    if extra := set(found) - FIELDS:
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
    body = gateway.body(request)
    try:
        wish = read_subscription(await body.json())
    finally:
        body.close()
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
async def _list(gateway: Gateway, request: Request) -> Response:
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
    _list,
    {200: "A list of maps of subscriber, uuid, callback, max_events, timeout, topics and events."},
    ("token_missing", "type_not_allowed"),
)

# The document has the first path of each pair, the server has both.
OPERATIONS = (
    Operation("POST", "/subscription", *SUBSCRIBING),
    Operation("POST", "/subscriber", *SUBSCRIBING),
    Operation("DELETE", "/subscriber", *UNSUBSCRIBING),
    Operation("DELETE", "/subscribers", *UNSUBSCRIBING),
    Operation("DELETE", "/subscriber/topics/{name}", *LEAVING),
    Operation("DELETE", "/subscribers/topics/{name}", *LEAVING),
    Operation("GET", "/subscriptions", *LISTING),
    Operation("GET", "/subscribers", *LISTING),
)
