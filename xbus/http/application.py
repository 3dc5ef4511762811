"""Puts the gateway together: a request passes the guard, then an operation of a dialect answers it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from xbus.clock import Clock
from xbus.config import HttpSettings
from xbus.emitter.options import Options
from xbus.errors import XbusError
from xbus.extras import installed_version
from xbus.http import problems
from xbus.http.bodies import Room
from xbus.http.description import describe
from xbus.http.dialects import cloudevents, native, routemaster
from xbus.http.dialects.gateway import Gateway, Operation
from xbus.http.front import FrontConnection
from xbus.http.guard import Guard, RequestLimits
from xbus.ids import Ids

OPERATIONS = (*native.OPERATIONS, *cloudevents.OPERATIONS, *routemaster.OPERATIONS)

DOCUMENTS_AT_ONCE = 8
"""The largest documents that requests keep together. Fewer refuse requests sooner, more take memory."""


def build(settings: HttpSettings, address: str, clock: Clock) -> Starlette:
    """Build the application.

    Args:
        settings: the section of the configuration.
        address: of the broker's front.
        clock: tells the time.
    """
    options = Options(
        retry_seconds=settings.insist_seconds,
        answer_seconds=settings.insist_seconds,
        # Whoever waits by HTTP is told of a pause, and comes again.
        pause_seconds=settings.insist_seconds,
    )
    front = FrontConnection(address, clock, Ids(clock), options)
    room = Room(DOCUMENTS_AT_ONCE * settings.max_document_bytes)
    bounds = (settings.max_document_bytes, settings.topic_data_bytes, settings.scaling_backlog)
    gateway = Gateway(front, clock, room, *bounds)
    limits = RequestLimits(settings.max_body_bytes, settings.slow_seconds)
    return Starlette(
        routes=[*(_route(gateway, operation) for operation in OPERATIONS), _described()],
        middleware=[Middleware(Guard, trusted=settings.trusted_proxies, limits=limits)],
        exception_handlers={
            XbusError: problems.of_the_bus,
            HTTPException: problems.of_http,
            Exception: problems.of_the_gateway,
        },
        lifespan=_connected(front),
    )


def _connected(front: FrontConnection) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def connected(app: Starlette) -> AsyncIterator[None]:
        async with front:
            yield

    return connected


def _route(gateway: Gateway, operation: Operation) -> Route:
    async def answer(request: Request) -> Response:
        return await operation.answer(gateway, request)

    return Route(_pattern(operation.path), answer, methods=[operation.method])


def _pattern(path: str) -> str:
    """Let the name of an event type have slashes."""
    return path.replace("{type}", "{type:path}")


def _described() -> Route:
    document = describe(OPERATIONS, installed_version() or "0")

    async def answer(request: Request) -> Response:
        return JSONResponse(document)

    handler: Callable[[Request], Awaitable[Response]] = answer
    return Route("/v1/openapi.json", handler)
