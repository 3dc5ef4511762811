"""Puts the gateway together: a request passes the guard, then an operation of a dialect answers it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import TypeAlias

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
from xbus.http.callbacks import AllowedAddresses, CallbackClient, CallbackService, GatewayBack
from xbus.http.description import describe
from xbus.http.dialects import cloudevents, native, routemaster
from xbus.http.dialects.gateway import Gateway, Operation
from xbus.http.front import FrontConnection
from xbus.http.guard import Guard, RequestLimits
from xbus.ids import Ids
from xbus.rpc.context import new_context

OPERATIONS = (*native.OPERATIONS, *cloudevents.OPERATIONS, *routemaster.OPERATIONS)

DOCUMENTS_AT_ONCE = 8
"""The largest documents that requests keep together. Fewer refuse requests sooner, more take memory."""


def build(settings: HttpSettings, address: str, clock: Clock, back: str = "") -> Starlette:
    """Build the application.

    Args:
        settings: the section of the configuration.
        address: of the broker's front.
        clock: tells the time.
        back: the address of the broker's back, to call subscribers; empty not to.
    """
    options = Options(
        retry_seconds=settings.insist_seconds,
        answer_seconds=settings.insist_seconds,
        # Whoever waits by HTTP is told of a pause, and comes again.
        pause_seconds=settings.insist_seconds,
    )
    front = FrontConnection(address, clock, Ids(clock), options)
    room = Room(DOCUMENTS_AT_ONCE * settings.max_document_bytes)
    gateway = Gateway(front, clock, room, settings.max_document_bytes)
    limits = RequestLimits(settings.max_body_bytes, settings.slow_seconds)
    return Starlette(
        routes=[*(_route(gateway, operation) for operation in OPERATIONS), _described()],
        middleware=[Middleware(Guard, trusted=settings.trusted_proxies, limits=limits)],
        exception_handlers={
            XbusError: problems.of_the_bus,
            HTTPException: problems.of_http,
            Exception: problems.of_the_gateway,
        },
        lifespan=_connected(front, _calling(settings, back, clock) if back else nullcontext),
    )


Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[object]]


def _calling(settings: HttpSettings, address: str, clock: Clock) -> Lifespan:
    """Call subscribers while the application runs."""

    @asynccontextmanager
    async def calling() -> AsyncIterator[None]:
        async with AsyncExitStack() as exit_stack:
            context = new_context()
            exit_stack.callback(context.destroy)
            back = GatewayBack(context, address, settings.callback_token, clock)
            exit_stack.callback(back.close)
            client = await exit_stack.enter_async_context(CallbackClient(AllowedAddresses(settings.callback_hosts)))
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(CallbackService(back, client, clock).run(), name="subscriptions")
                yield
                serving.cancel()

    return calling


def _connected(front: FrontConnection, calling: Lifespan) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def connected(app: Starlette) -> AsyncIterator[None]:
        async with front, calling():
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
