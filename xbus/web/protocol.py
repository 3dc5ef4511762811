"""Reads the requests of clients one after another, within bounds of connections, heads and time.

httptools parses them. It is quick and strict, but it bounds nothing, and reads ahead: both is done here.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from xbus.web.connections import ConnectionLimits, WebConnection
from xbus.web.requests import KNOWN

HEAD_BYTES = 65_536
"""Bytes of the head of a request, and of what stands between two parts of a body. Fewer refuse long headers, more let
strangers take memory."""

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
            self.send_400_response("The head of the request is too long.")
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
        self._pending_bytes = 0
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
