"""``start_xbusmonitor``: builds the monitor from its configuration, and serves it until it is stopped."""

import socket
from contextlib import closing
from pathlib import Path

import click
import uvicorn

from xbus import ending, logs
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.pool import ConnectionPool
from xbus.clock import SystemClock
from xbus.config import MonitorSettings, load
from xbus.config.command_line import file_option
from xbus.config.plaintext import is_local
from xbus.errors import ConfigurationError
from xbus.monitor.application import build
from xbus.monitor.bus import BusAccess
from xbus.monitor.live.audience import Audience
from xbus.system import service_manager
from xbus.web.listening import open_port, served_address, stop_at_signal

STOP_SECONDS = 5
"""Seconds that requests may take when the monitor stops. Fewer cut pages off, more delay the end."""

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
        server = MonitorServer(
            uvicorn.Config(
                application,
                # It bounds the head of a request. httptools, which the gateway for HTTP brings, leaves that to us.
                http="h11",
                log_config=None,
                access_log=False,
                server_header=False,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.certificate_key,
                timeout_graceful_shutdown=STOP_SECONDS,
            ),
            application.state.parts.sampler.audience,
        )
        service_manager.tell_ready({"monitor": address}, ready_file)
        server.run(sockets=[listening])


class MonitorServer(uvicorn.Server):
    """Ends the streams of open pages before it waits for requests: a stream ends by nothing else.

    Args:
        config: of the server.
        audience: has the streams.
    """

    def __init__(self, config: uvicorn.Config, audience: Audience) -> None:
        super().__init__(config)
        self._audience = audience

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving."""
        self._audience.end()
        await super().shutdown(sockets)


def _check_plaintext(settings: MonitorSettings, *, allowed: bool) -> None:
    if settings.certificate is None and not allowed and not is_local(f"tcp://{settings.listen}"):
        raise ConfigurationError(
            f"[monitor] listen = {settings.listen} takes passwords from other machines without encryption",
            "give [monitor] certificate and certificate_key, or let it listen at 127.0.0.1 behind a web server that "
            "has one; or say [curve] allow_plaintext = true where the network is trusted",
            code="plaintext_refused",
        )
