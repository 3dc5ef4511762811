"""``start_xbushttp``: builds the gateway from its configuration, and serves it until it is stopped."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
from starlette.applications import Starlette

from xbus import ending, logs
from xbus.clock import Clock, SystemClock
from xbus.config import Config, HttpSettings, load
from xbus.config.command_line import file_option
from xbus.config.reaching import reachable
from xbus.errors import ConfigurationError
from xbus.extras import needing
from xbus.http.application import build, on_stop
from xbus.system import collector, service_manager
from xbus.web.connections import ConnectionLimits
from xbus.web.server import WebServer, open_port, served_address, server_config, stop_at_signal

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
