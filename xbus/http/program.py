"""``start_xbushttp``: builds the gateway from its configuration, and serves it until it is stopped."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from http import HTTPStatus
from pathlib import Path

import click
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from xbus import ending, logs
from xbus.clock import Clock, SystemClock
from xbus.config import Config, HttpSettings, load
from xbus.config.command_line import file_option
from xbus.config.reaching import reachable
from xbus.emitter.options import Options
from xbus.errors import ConfigurationError, XbusError
from xbus.extras import installed_version, needing
from xbus.http import problems
from xbus.http.batches import BackConnection
from xbus.http.bodies import Room
from xbus.http.callbacks.service import SubscriptionLook, call_subscribers
from xbus.http.dialects import cloudevents, native, routemaster
from xbus.http.dialects.gateway import Gateway, Operation, describe
from xbus.http.figures import OPERATION, CountedRequests, HttpFigures, RoutemasterCounters, StatsdReports
from xbus.http.front import FrontConnection
from xbus.http.problems import Guard
from xbus.http.tails import TailPace, Tails
from xbus.http.targets import AllowedAddresses, CallbackTargets
from xbus.ids import Ids
from xbus.system import collector, service_manager
from xbus.web.connections import ConnectionLimits, is_in, networks_of
from xbus.web.requests import RequestLimits, client_is_known
from xbus.web.server import WebServer, open_port, served_address, server_config, stop_at_signal

OPERATIONS = (*native.OPERATIONS, *native.READING_OPERATIONS, *cloudevents.OPERATIONS, *routemaster.OPERATIONS)

DOCUMENTS_AT_ONCE = 8
"""The largest documents that requests keep together. Fewer refuse requests sooner, more take memory."""


def build(settings: HttpSettings, address: str, clock: Clock, *, back: str, pace: TailPace | None = None) -> Starlette:
    """Build the application.

    Args:
        settings: the section of the configuration.
        address: of the broker's front.
        clock: tells the time.
        back: the address of the broker's back.
        pace: that of tails; the usual one where none is given.
    """
    options = Options(
        retry_seconds=settings.insist_seconds,
        answer_seconds=settings.insist_seconds,
        # Whoever waits by HTTP is told of a pause, and comes again.
        pause_seconds=settings.insist_seconds,
    )
    front = FrontConnection(address, clock, Ids(clock), options)
    room = Room(DOCUMENTS_AT_ONCE * settings.max_document_bytes)
    called = BackConnection(back, clock, settings.insist_seconds)
    counters = RoutemasterCounters()
    look = SubscriptionLook(counters, clock)
    targets = CallbackTargets(AllowedAddresses(settings.callback_hosts))
    gateway = Gateway(front, called, Tails(called, pace or TailPace()), clock, room, settings, counters, targets)
    limits = RequestLimits(settings.max_body_bytes, settings.slow_seconds)
    figures = _figures(gateway)

    @asynccontextmanager
    async def connected(app: Starlette) -> AsyncIterator[None]:
        calling = call_subscribers(settings, back, clock, counters, look)
        async with front, called, _reporting(settings.statsd, counters, look), calling:
            with closing(targets):
                yield

    application = Starlette(
        routes=[
            *(_route(gateway, operation) for operation in OPERATIONS),
            _described(),
            _counted(figures, look, settings.metrics_from),
        ],
        middleware=[
            Middleware(CountedRequests, figures=figures),
            Middleware(Guard, trusted=settings.trusted_proxies, limits=limits),
        ],
        exception_handlers={
            XbusError: problems.of_the_bus,
            HTTPException: problems.of_http,
            ClientDisconnect: problems.of_who_left,
            Exception: problems.of_the_gateway,
        },
        lifespan=connected,
    )
    application.state.gateway = gateway
    return application


def on_stop(application: Starlette) -> Callable[[], None]:
    """Give what is to be called when the server stops: what waits for long ends then."""
    gateway: Gateway = application.state.gateway
    return gateway.tails.stop


@asynccontextmanager
async def _reporting(address: str, counters: RoutemasterCounters, look: SubscriptionLook) -> AsyncIterator[None]:
    """Report metrics to statsd for as long as the block lasts, if the configuration names a server of it."""
    counters.began("web")
    async with asyncio.TaskGroup() as tasks:
        reports = StatsdReports(address, counters, look.gauges) if address else None
        reporting = None if reports is None else tasks.create_task(reports.run(), name="reports to statsd")
        yield
        counters.ended("web")
        if reporting is not None:
            reporting.cancel()


def _route(gateway: Gateway, operation: Operation) -> Route:
    name = f"{operation.method} {operation.path}"

    async def answer(request: Request) -> Response:
        request.scope[OPERATION] = name
        response = await operation.answer(gateway, request)
        if operation.needs_token and response.status_code < HTTPStatus.BAD_REQUEST:
            client_is_known(request.scope)
        return response

    # The name of an event type may have slashes.
    return Route(operation.path.replace("{type}", "{type:path}"), answer, methods=[operation.method])


def _described() -> Route:
    document = describe(OPERATIONS, installed_version() or "0")

    async def answer(request: Request) -> Response:
        return JSONResponse(document)

    return Route("/v1/openapi.json", answer)


def _figures(gateway: Gateway) -> HttpFigures:
    tails, room = gateway.tails, gateway.room
    return HttpFigures(
        [
            ("xbus_http_followers", "Programs that follow an event type at its end", lambda: tails.followers),
            (
                "xbus_http_tails",
                "Ends of event types that are followed: those of one token share one",
                lambda: tails.open,
            ),
            (
                "xbus_http_kept_bytes",
                "Bytes of documents and batches in memory, as they are counted",
                lambda: room.taken,
            ),
        ],
        gateway.counters,
    )


def _counted(figures: HttpFigures, look: SubscriptionLook, allowed: Sequence[str]) -> Route:
    networks = networks_of(allowed)

    async def answer(request: Request) -> Response:
        if request.client is None or not is_in(request.client.host, networks):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        figures.of_subscriptions = await look.gauges()
        body, content_type = figures.write(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return Route("/metrics", answer)


STOP_SECONDS = 10
"""Seconds that requests may take when the gateway stops. Fewer cut senders off, more delay the end."""

EXIT_CODES = (
    "Ends with 0 when it was told to stop, with 1 when something must be mended first, which a line on standard error "
    "names with its cure, and with 2 when the command line is wrong."
)


@click.command(epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@file_option("path", "The broker's configuration file; [http] has the options of this program.")
@click.option("--ready-file", type=click.Path(path_type=Path), metavar="FILE", help="Written when it serves, as JSON.")
def start(path: Path | None, ready_file: Path | None) -> None:
    """Serve programs by HTTP until SIGTERM or SIGINT.

    Make a token first: xbus token new NAME --emitter LOGIN
    """
    with ending.in_one_line("start_xbushttp"):
        config = load(path)
        logs.set_up(config.logging)
        stop_at_signal()
        serve(config, ready_file)


def serve(config: Config, ready_file: Path | None) -> None:
    """Serve until a signal comes.

    Args:
        config: the whole configuration.
        ready_file: gets the process id and the address as JSON when the port is open.

    Raises:
        ConfigurationError: the address can't be taken, or nobody knows where the broker is.
    """
    settings = config.http
    front = settings.front or reachable(config.zmq.frontsocket, "front")
    back = settings.back or reachable(config.zmq.backsocket, "back")
    if settings.callbacks and not settings.callback_token:
        raise ConfigurationError(
            "[http] callbacks = yes needs callback_token",
            "make one: xbus token new NAME --role LOGIN, of a role whose service is of kind gateway",
        )
    clock = SystemClock()
    application = build(settings, front, clock, back=back)
    with reporting_exceptions(config.sentry.dsn), closing(open_port("http", settings.listen)) as listening:
        address = served_address(settings.listen, listening, settings.certificate)
        server = web_server(application, settings, clock)
        collector.spare_what_is_here()
        service_manager.tell_ready({"http": address}, ready_file)
        server.run(sockets=[listening])


@contextmanager
def reporting_exceptions(dsn: str) -> Iterator[None]:
    """Report exceptions to Sentry for as long as the block lasts.

    Args:
        dsn: the address of a project of Sentry; empty for none.

    Raises:
        MissingExtra: its library is not installed.
        ConfigurationError: the address is none of Sentry's.
    """
    if not dsn:
        yield
        return
    with needing("[sentry] dsn", "sentry"):
        from xbus import sentry  # here, as few installations have its library
    with sentry.reporting(dsn, "http"):
        yield


def web_server(application: Starlette, settings: HttpSettings, clock: Clock) -> WebServer:
    """Make the server.

    Args:
        application: answers the requests.
        settings: the section of the configuration.
        clock: measures how often the log tells of a client.
    """
    slow = settings.slow_seconds
    config = server_config(
        application,
        certificate=settings.certificate,
        key=settings.certificate_key,
        stop_seconds=STOP_SECONDS,
        # The guard decides whom to believe.
        trusts_proxies=False,
    )
    limits = ConnectionLimits(settings.max_connections, slow, slow, settings.trusted_proxies)
    return WebServer("start_xbushttp", config, limits, clock, on_stop(application))
