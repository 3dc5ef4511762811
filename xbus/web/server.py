"""Serves an application by HTTP: takes connections within bounds, hands each to the protocol, and ends at a signal."""

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from xbus.clock import Clock
from xbus.config import host_and_port
from xbus.errors import ConfigurationError
from xbus.log_throttle import LogThrottle
from xbus.system.descriptors import raise_limit
from xbus.web.connections import ConnectionLimits, WebConnection, WebConnections
from xbus.web.protocol import BoundedProtocol


def open_port(section: str, address: str) -> socket.socket:
    """Open the port that a section of the configuration names by its option ``listen``.

    Raises:
        ConfigurationError: the address can't be taken (``address_in_use``).
    """
    host, port = host_and_port(address)
    try:
        return socket.create_server(
            ("" if host == "*" else host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise ConfigurationError(
            f"[{section}] listen = {address} can't be taken ({error.strerror})",
            "see which program has the port, or give another",
            code="address_in_use",
        ) from error


def served_address(address: str, listening: socket.socket, certificate: Path | None) -> str:
    """Write the address by which clients reach an open port.

    Args:
        address: of the configuration.
        listening: the open port, whose number may have been chosen by the system.
        certificate: of the server; None where it speaks plain HTTP.
    """
    host, port = host_and_port(address)[0], listening.getsockname()[1]
    scheme = "http" if certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def stop_at_signal() -> None:
    """Have SIGTERM and SIGINT end the program with 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


log = logging.getLogger(__name__)

OWN_DESCRIPTORS = 128
"""File descriptors that connections leave to the rest of the program: its database, its files, its way to the broker.
Fewer let connections keep the program from its database, more refuse connections sooner."""

ACCEPTED_AT_ONCE = 50
"""Connections that are taken in one turn of the loop. More keep the connected ones waiting."""

NO_DESCRIPTOR_SECONDS = 1.0
"""Seconds until connections are taken again after no descriptor was free."""

CLOSING_SECONDS = 5.0
"""Seconds that a client may take to agree to the end of an encrypted connection."""

START_FAILED = 3
"""The exit code of a program whose application does not start, as uvicorn has it."""

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def server_config(
    application: Callable[..., Any],
    *,
    certificate: Path | None,
    key: Path | None,
    stop_seconds: int,
    trusts_proxies: bool,
) -> uvicorn.Config:
    """Make the settings of a server.

    Args:
        application: answers the requests.
        certificate: of the server; None for plain HTTP.
        key: of the certificate.
        stop_seconds: that requests may take when the server stops.
        trusts_proxies: whether a web server on this machine says by ``X-Forwarded-For`` who asks.
    """
    return uvicorn.Config(
        application,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=trusts_proxies,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=stop_seconds,
    )


class WebServer(uvicorn.Server):
    """Serves an application.

    Args:
        name: of the program, for the log.
        config: of the server.
        limits: of its connections; fewer, where the system gives too few file descriptors.
        clock: measures how often the log tells of a client.
        on_stop: called when it stops: what waits for long is to end then.
    """

    def __init__(
        self, name: str, config: uvicorn.Config, limits: ConnectionLimits, clock: Clock, on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._name = name
        self._limits = limits
        self._clock = clock
        self._on_stop = on_stop
        self._no_descriptor = LogThrottle(clock)
        self._connections: WebConnections
        self._beginning: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._again: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(START_FAILED)
        self.servers = []
        self._limits = _within_descriptors(self._name, self._limits)
        self._connections = WebConnections(self._name, self._limits, self._clock)
        for listening in sockets or []:
            listening.setblocking(False)
            listening.listen(self.config.backlog)
            self._listening.append(listening)
        self._accept_again()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: take no more connections, and end those that wait for long."""
        self._take_nobody()
        if self._again is not None:
            self._again.cancel()
        for task in self._beginning:
            task.cancel()
        self._on_stop()
        await super().shutdown(sockets)

    def _accept_again(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.add_reader(listening, self._accept, listening)

    def _take_nobody(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, place = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                self._accept_later(error)
                return
            self._begin(accepted, str(place[0]))

    def _accept_later(self, error: OSError) -> None:
        """Take nobody for a moment: whoever waits for a descriptor would keep the loop busy."""
        if count := self._no_descriptor.note(""):
            extra = {"action": "connection_not_taken", "cause": str(error), "count": count}
            log.error("%s: a connection can't be taken", self._name, extra=extra)
        self._take_nobody()
        self._again = asyncio.get_running_loop().call_later(NO_DESCRIPTOR_SECONDS, self._accept_again)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        connection = self._connections.enter(address, accepted.close)
        if connection is None:
            accepted.close()
            return
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._connect(accepted, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _connect(self, accepted: socket.socket, connection: WebConnection) -> None:
        """Speak HTTP with a client, after the handshake of TLS where the server has a certificate."""
        if accepted.fileno() < 0:
            return  # It was cut before its turn came.
        task = asyncio.current_task()
        assert task is not None, "it is started as one"
        # From here on the socket is the transport's, which alone may close it.
        connection.cut = task.cancel
        of_tls: dict[str, float] = {}
        if self.config.ssl is not None:
            of_tls = {"ssl_handshake_timeout": self._limits.stranger_seconds, "ssl_shutdown_timeout": CLOSING_SECONDS}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(connection), accepted, ssl=self.config.ssl, **of_tls
            )
        except OSError:
            # The protocol hears of the end of a connection that has begun, and of no other one.
            connection.left()
        except BaseException:
            connection.left()
            raise

    def _protocol(self, connection: WebConnection) -> asyncio.Protocol:
        return BoundedProtocol(
            limits=self._limits,
            connection=connection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )


def _within_descriptors(name: str, limits: ConnectionLimits) -> ConnectionLimits:
    """Take no more connections than the system gives file descriptors for."""
    most = max(1, raise_limit() - OWN_DESCRIPTORS)
    if most >= limits.connections:
        return limits
    extra = {"action": "descriptors_short", "connections": most}
    log.warning(
        "%s takes %d connections, as it may open no more files: raise the hard limit of open files (LimitNOFILE=)",
        name,
        most,
        extra=extra,
    )
    return replace(limits, connections=most)
