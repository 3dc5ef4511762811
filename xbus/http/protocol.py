"""Bounds the connections of clients, and the time that each may take for the head of a request."""

import asyncio
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The bounds of connections.

    Args:
        connections: how many may be open.
        head_seconds: how long a client may take for the head of a request.
    """

    connections: int
    head_seconds: float


class BoundedProtocol(H11Protocol):
    """Closes a connection that is one too many, or whose next request does not begin in time.

    Args:
        limits: its bounds.
        options: as the server of uvicorn gives them.
    """

    def __init__(self, *, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a new connection."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.abort()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._head_came()
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

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._limits.head_seconds, self.transport.close)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
