"""``start_xbusmonitor``: builds the monitor from its configuration, and serves it until it is stopped."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import anyio.to_thread
import click
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from xbus import ending, logs
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import ConnectionPool
from xbus.clock import Clock, SystemClock
from xbus.config import MonitorSettings, load
from xbus.config.command_line import file_option
from xbus.config.plaintext import is_local
from xbus.errors import ConfigurationError, XbusError
from xbus.extras import installed_version
from xbus.monitor import shield
from xbus.monitor.actions import serve_for_persons, serve_for_programs
from xbus.monitor.bus import BusAccess
from xbus.monitor.features import ACTIONS, PAGES, RESOURCES
from xbus.monitor.live.sampler import Audience, Sampler
from xbus.monitor.people import Door
from xbus.monitor.rendering import PACKAGE, Parts, templates
from xbus.monitor.shield import API, Shield
from xbus.periodic import after_every
from xbus.system import service_manager
from xbus.web.connections import ConnectionLimits
from xbus.web.server import WebServer, open_port, served_address, server_config, stop_at_signal

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
    app.add_exception_handler(XbusError, shield.of_the_bus)
    app.add_exception_handler(HTTPException, shield.of_http)
    app.add_exception_handler(RequestValidationError, shield.of_arguments)
    app.add_exception_handler(Exception, shield.of_the_program)
    app.mount("/assets", StaticFiles(packages=[(PACKAGE, "assets")]))
    app.include_router(_for_persons())
    app.include_router(_for_programs(), prefix=API)
    return app


def show(frame: FastAPI, bus: BusAccess, *, is_encrypted: bool) -> None:
    """Have a frame show a bus, in place of the one that it showed."""
    door = Door(bus.journal, bus.config.monitor, bus.passwords, bus.clock)
    sampler = Sampler(bus, Audience())
    frame.state.parts = Parts(bus, door, templates(), sampler, is_encrypted)


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


STOP_SECONDS = 5
"""Seconds that requests may take when the monitor stops. Fewer cut pages off, more delay the end."""

MOST_CONNECTIONS = 1000
"""Connections that are open at once. A browser has up to six, and one more for each page that is live."""

SLOW_SECONDS = 30.0
"""Seconds for the head of a request, and for a browser to take something of an answer. Fewer cut slow lines off."""

EXIT_CODES = (
    "Ends with 0 when it was told to stop, with 1 when something must be mended first, which a line on standard error "
    "names with its cure, with 2 when the command line is wrong, and with 3 when the database can't be reached."
)


@click.command(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@file_option("path", "The broker's configuration file; [monitor] has the options of this program.")
@click.option("--ready-file", type=click.Path(path_type=Path), metavar="FILE", help="Written when it serves, as JSON.")
def start(path: Path | None, ready_file: Path | None) -> None:
    """Serve the bus to browsers until SIGTERM or SIGINT.

    Add a person first: xbus person add NAME manager
    """
    with ending.in_one_line("start_xbusmonitor"):
        config = load(path)
        logs.set_up(config.logging)
        schema.check(config.database.url)
        stop_at_signal()
        with closing(ConnectionPool(config.database.url)) as journal:
            serve(BusAccess(config, journal, SystemClock()), ready_file)


def serve(bus: BusAccess, ready_file: Path | None) -> None:
    """Serve until a signal comes.

    Args:
        bus: all that pages ask.
        ready_file: gets the process id and the address as JSON when the port is open.

    Raises:
        ConfigurationError: the address can't be taken, or other machines would send passwords in plain text.
    """
    settings = bus.config.monitor
    _check_plaintext(settings, allowed=bus.config.curve.allow_plaintext)
    with closing(open_port("monitor", settings.listen)) as listening:
        address = served_address(settings.listen, listening, settings.certificate)
        application = build(bus, is_encrypted=settings.certificate is not None)
        server = web_server(application, settings, bus.clock)
        service_manager.tell_ready({"monitor": address}, ready_file)
        server.run(sockets=[listening])


def web_server(application: FastAPI, settings: MonitorSettings, clock: Clock) -> WebServer:
    """Make the server.

    Args:
        application: answers the requests.
        settings: the section of the configuration.
        clock: measures how often the log tells of a client.
    """
    config = server_config(
        application,
        certificate=settings.certificate,
        key=settings.certificate_key,
        stop_seconds=STOP_SECONDS,
        trusts_proxies=True,
    )
    limits = ConnectionLimits(MOST_CONNECTIONS, SLOW_SECONDS, SLOW_SECONDS)
    # The streams of open pages end by nothing else.
    return WebServer("start_xbusmonitor", config, limits, clock, application.state.parts.sampler.audience.end)


def _check_plaintext(settings: MonitorSettings, *, allowed: bool) -> None:
    if settings.certificate is None and not allowed and not is_local(f"tcp://{settings.listen}"):
        raise ConfigurationError(
            f"[monitor] listen = {settings.listen} takes passwords from other machines without encryption",
            "give [monitor] certificate and certificate_key, or let it listen at 127.0.0.1 behind a web server that "
            "has one; or say [curve] allow_plaintext = true where the network is trusted",
            code="plaintext_refused",
        )
