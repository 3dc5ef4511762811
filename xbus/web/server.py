"""Serves an application by HTTP: takes connections within bounds, reads their requests, and ends at a signal."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from xbus.accepting import Acceptor
from xbus.clock import Clock
from xbus.config import host_and_port
from xbus.errors import ConfigurationError
from xbus.system.descriptors import raise_limit
from xbus.web.connections import ConnectionLimits, WebConnection, WebConnections
from xbus.web.requests import KNOWN

HEAD_BYTES = 65_536
"""Bytes of the head of a request, and of what stands beside the parts of a body. Fewer refuse long headers, more let
strangers take memory."""

BESIDE_A_BYTE = 16
"""Bytes that may stand beside a byte of a body, as the sizes of its chunks. Fewer refuse those who send small chunks,
more let strangers keep the server reading what means nothing."""

MOST_HEADERS = 256
"""Headers of a request. Each takes memory beside its bytes: fewer refuse long heads, more let strangers take it."""

WRITE_BYTES = 16_384
"""Bytes of an answer that wait in memory for a client. More take more memory for those who read slowly."""


class GatheredWrites:
    """Hands what is written in one turn of the event loop to a connection as a whole.

    The head and the body of an answer come one after the other: each would be a call of the system and a packet.

    Args:
        transport: of the connection; all but writing and closing goes straight to it.
        loop: whose turns count.
        linger_seconds: how long a client may take to read the rest behind the end.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, linger_seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._linger_seconds = linger_seconds
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> object:
        found: object = getattr(self._transport, name)
        return found

    def write(self, data: bytes) -> None:
        """Write at the end of this turn, or at once where that would be much."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > WRITE_BYTES:
            self._flush()

    def close(self) -> None:
        """Close behind what was written; who does not read the rest in time loses it."""
        # asyncio forgets the state of a connection by TLS that is closed twice.
        if self._transport.is_closing():
            return
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(self._linger_seconds, self._transport.abort)

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self._transport.write(b"".join(parts))


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose next request is late, and those that take no answer.

    A request that comes before the answer to the one before is not read: the connection ends behind that answer, and
    the client sends it again (RFC 9112, 9.3.2). So a connection costs the memory of one request.

    Args:
        limits: its bounds.
        connection: its place in the table of the server.
        options: as the server of uvicorn gives them.
    """

    def __init__(self, *, limits: ConnectionLimits, connection: WebConnection, **options: Any) -> None:
        super().__init__(**options)
        self._connection = connection
        self._stall: asyncio.TimerHandle | None = None
        self._limits = limits
        self._head: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_in_head = False
        self._is_in_body = False
        self._is_unreadable = False
        self._pending_bytes = 0

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, GatheredWrites(transport, self.loop, self._limits.stall_seconds))
        transport.set_write_buffer_limits(WRITE_BYTES)
        self._connection.cut = transport.abort
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._head_came()
        self._answer_taken()
        self._connection.left()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self._is_unreadable:
            return
        self._pending_bytes += len(data)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # Nothing but HTTP is spoken here.
        except httptools.HttpParserError:
            self.send_400_response("The request makes no sense.")
        if self._pending_bytes > HEAD_BYTES and not self._is_unreadable:
            what = "What stands beside the body" if self._is_in_body else "The head of the request"
            self.send_400_response(f"{what} is too long.")
        elif self._head is None and not self._is_in_body and not self._is_answering:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what makes no sense. It ends the connection, but not the answer to a request that was read."""
        self._is_unreadable = True
        self._connection.is_unreadable()
        if not self._is_answering or (self._is_in_body and not self.cycle.response_started):
            super().send_400_response(msg)
        elif self._is_in_body:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._is_answering:
            raise ValueError("a request comes before the answer to the one before")
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()
        self.scope["state"][KNOWN] = self._is_known

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one behind the body comes too late to mean anything."""
        if self._is_in_head:
            self._count_head(len(name) + len(value))
            if len(self.headers) >= MOST_HEADERS:
                raise ValueError(f"a request has {MOST_HEADERS} headers at most")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer the request; its body may still come."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise ValueError("a request names one host (RFC 9112, 3.2)")
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (codings != [b"chunked"] or self.parser.get_http_version() == "1.0"):
            raise ValueError("a body is chunked in HTTP/1.1 alone, and nothing else (RFC 9112, 6.1)")
        self._head_came()
        self._connection.is_answered()
        self._pending_bytes = 0
        self._is_in_head, self._is_in_body = False, True
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # What follows may be of another protocol.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._pending_bytes = max(0, self._pending_bytes - BESIDE_A_BYTE * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._pending_bytes = 0
        self._is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on behind an answer; the unread rest of a body takes no longer than a head."""
        super().on_response_complete()
        self._connection.owes_a_request()
        if self._is_in_body and self._head is None:
            self._await_head()

    def pause_writing(self) -> None:
        """Give a client that does not read its time."""
        super().pause_writing()
        if not self._connection.is_known:
            # A stranger who does not read says as little as one who does not ask.
            self._connection.owes_a_request()
        if self._stall is None:
            self._stall = self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with a client that reads again."""
        self._answer_taken()
        if self._is_answering:
            self._connection.is_answered()
        super().resume_writing()

    def _answer_taken(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _is_known(self) -> None:
        self._connection.is_known = True

    def _count_head(self, size: int) -> None:
        """Count what the head of a request takes, however it was cut for the way."""
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            raise ValueError(f"the head of a request has {HEAD_BYTES} bytes at most")

    def _await_head(self) -> None:
        limits = self._limits
        seconds = limits.head_seconds if self._connection.is_known else limits.stranger_seconds
        self._head = self.loop.call_later(seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


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

CLOSING_SECONDS = 5.0
"""Seconds that a client may take to agree to the end of an encrypted connection."""

START_FAILED = 3
"""The exit code of a program whose application does not start, as uvicorn has it."""


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
        self._connections: WebConnections
        self._acceptor: Acceptor
        self._beginning: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(START_FAILED)
        self.servers = []
        self._limits = _within_descriptors(self._name, self._limits)
        self._connections = WebConnections(self._name, self._limits, self._clock)
        self._acceptor = Acceptor(self._name, self._clock, self._begin)
        for listening in sockets or []:
            listening.setblocking(False)
            listening.listen(self.config.backlog)
            self._acceptor.sockets.append(listening)
        self._acceptor.start()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: take no more connections, and end those that wait for long."""
        self._acceptor.stop()
        for task in self._beginning:
            task.cancel()
        self._on_stop()
        await super().shutdown(sockets)

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
