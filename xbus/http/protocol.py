"""Bounds the connections of clients, and the time that each may take for the head of a request."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds of connections.

    Args:
        connections: how many may be open.
        head_seconds: how long a client may take for the head of a request.
        stall_seconds: how long a client may take nothing of an answer that waits for it.
    """

    connections: int
    head_seconds: float
    stall_seconds: float


WRITE_BYTES = 16_384
"""Bytes of an answer that wait in memory for a client. More take more memory for those who read slowly."""


class GatheredWrites:
    """Hands what is written in one turn of the event loop to a connection as a whole.

    The head and the body of an answer come one after the other: each would be a call of the system and a packet.

    Args:
        transport: of the connection; all but writing and closing goes straight to it.
        loop: whose turns count.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
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
        """Close behind what was written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self._transport.write(b"".join(parts))


class BoundedProtocol(H11Protocol):
    """Closes connections beyond the limit, those whose next request is late, and those that take no answer.

    Args:
        limits: its bounds.
        on_stop: called when the server stops: what waits for long is to end then.
        options: as the server of uvicorn gives them.
    """

    def __init__(self, *, limits: ConnectionLimits, on_stop: Callable[[], None], **options: Any) -> None:
        super().__init__(**options)
        self._on_stop = on_stop
        self._stall: asyncio.TimerHandle | None = None
        self._limits = limits
        self._head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, GatheredWrites(transport, self.loop))
        transport.set_write_buffer_limits(WRITE_BYTES)
        if len(self.connections) > self._limits.connections:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._head_came()
        self._answer_taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._head_came()
        elif self.conn.their_state is h11.IDLE and self._head is None:
            self._await_head()

    def on_response_complete(self) -> None:
        """Go on behind an answer; the rest of a body that nobody reads any more takes no longer than a head."""
        answered = self.cycle
        super().on_response_complete()
        # A request that was sent behind this one may have begun by now.
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY and self._head is None:
            self._await_head()

    def pause_writing(self) -> None:
        """Give a client that does not read its time."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with a client that reads again."""
        self._answer_taken()
        super().resume_writing()

    def shutdown(self) -> None:
        """End the connection, as the server stops."""
        self._on_stop()
        super().shutdown()

    def _answer_taken(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._limits.head_seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
