"""Puts the monitor together: who asks passes the shield, then a page or the REST interface answers."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio.to_thread
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from xbus.errors import XbusError
from xbus.extras import installed_version
from xbus.monitor import problems
from xbus.monitor.actions import serve_for_persons, serve_for_programs
from xbus.monitor.bus import BusAccess
from xbus.monitor.features import ACTIONS, PAGES, RESOURCES
from xbus.monitor.live.sampler import Audience, Sampler
from xbus.monitor.people import Door
from xbus.monitor.rendering import PACKAGE, Renderer
from xbus.monitor.requests import Parts
from xbus.monitor.shield import API, Shield
from xbus.periodic import after_every

log = logging.getLogger(__name__)

AUDIT_SECONDS = 60.0
"""Seconds between two looks at log-ins that were refused and are not in the audit yet."""

THREADS = 4
"""Requests that read the journal at once. More take processor time from the broker beside."""


def build(bus: BusAccess, *, is_encrypted: bool) -> FastAPI:
    """Build the application.

    Args:
        bus: all that pages ask.
        is_encrypted: whether browsers come by HTTPS.
    """
    app = build_frame()
    show(app, bus, is_encrypted=is_encrypted)
    return app


def build_frame() -> FastAPI:
    """Build all of the application but the bus that it shows."""
    app = FastAPI(
        title="Xbus",
        version=installed_version() or "0",
        description="Observe and repair the bus. Programs send a token: Authorization: Bearer TOKEN.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_running,
    )
    app.add_middleware(Shield)
    app.add_exception_handler(XbusError, problems.of_the_bus)
    app.add_exception_handler(HTTPException, problems.of_http)
    app.add_exception_handler(RequestValidationError, problems.of_arguments)
    app.add_exception_handler(Exception, problems.of_the_program)
    app.mount("/assets", StaticFiles(packages=[(PACKAGE, "assets")]))
    app.include_router(_for_persons())
    app.include_router(_for_programs(), prefix=API)
    return app


def show(frame: FastAPI, bus: BusAccess, *, is_encrypted: bool) -> None:
    """Have a frame show a bus, in place of the one that it showed."""
    door = Door(bus.journal, bus.config.monitor, bus.passwords, bus.clock)
    sampler = Sampler(bus, Audience())
    frame.state.parts = Parts(bus, door, Renderer(), sampler, is_encrypted=is_encrypted)


def _for_persons() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    for pages in PAGES:
        router.include_router(pages)
    for action in ACTIONS:
        serve_for_persons(router, action)
    return router


def _for_programs() -> APIRouter:
    router = APIRouter()
    for resource in RESOURCES:
        router.include_router(resource)
    for action in ACTIONS:
        serve_for_programs(router, action)
    return router


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    """Bound the threads in which requests block; meanwhile sample the bus, and audit who was refused."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    parts: Parts = app.state.parts
    tasks = [
        asyncio.create_task(parts.sampler.run(), name="samples of the bus"),
        asyncio.create_task(after_every(AUDIT_SECONDS, partial(_audit, parts.door)), name="refused log-ins"),
    ]
    try:
        yield
    finally:
        parts.sampler.audience.end()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await _audit(parts.door, is_last=True)


async def _audit(door: Door, *, is_last: bool = False) -> None:
    try:
        await asyncio.to_thread(door.audit_refused, is_last=is_last)
    except XbusError as error:
        log.warning("refused log-ins are not in the audit: %s", error, extra={"action": "audit_missed"})
