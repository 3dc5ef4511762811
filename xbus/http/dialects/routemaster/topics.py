"""Push events into topics, list topics, and remove one."""

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from xbus.emitter.envelope import envelope_options
from xbus.emitter.event import EventStart
from xbus.errors import Refused
from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.routemaster.answers import emptily, nothing
from xbus.http.dialects.routemaster.events import check_topic, read_event
from xbus.http.publishing import publish
from xbus.http.request_tags import token_of
from xbus.rpc.items import item_bytes
from xbus.rpc.provisioning.messages import TopicMap
from xbus.rpc.shapes import AnswerReader

_TOPICS = AnswerReader("xbus.list_topics", list[TopicMap])

CLAIMED = ("unknown_type", "type_not_allowed")
"""The refusals after which a publisher may get the topic for itself."""


@emptily
async def _push(gateway: Gateway, request: Request) -> Response:
    line = await gateway.line(request)
    topic = check_topic(request.path_params["name"])
    body = gateway.body(request)
    try:
        event = read_event(
            topic,
            await body.json(),
            gateway.clock.now(),
            gateway.settings.topic_data_bytes,
        )
    finally:
        body.close()
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
async def _list(gateway: Gateway, request: Request) -> Response:
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

OPERATIONS = (
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
        _list,
        {200: "A list of maps of name, publisher and events."},
        ("token_missing", "journal_unavailable"),
    ),
    # The document has the first path, the server and the client for Ruby the second one.
    Operation("DELETE", "/topic/{name}", *REMOVING),
    Operation("DELETE", "/topics/{name}", *REMOVING),
)
