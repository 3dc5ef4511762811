"""Answer whether the bus works, and whether it keeps up."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.routemaster.answers import emptily, nothing
from xbus.http.request_tags import token_of
from xbus.rpc.shapes import AnswerReader

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

OPERATIONS = (
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
