"""The other side, as somebody sees it who calls its verbs."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from xbus.rpc.codec import Value


class Callee(Protocol):
    """Somebody whose verbs can be called.

    A ``Client`` reaches it at its address. A ``PeerClient`` reaches it over the connection that it made itself.
    """

    @property
    def connection(self) -> bytes | None:
        """The connection that it made to us and is called over; None if we made one to its address."""

    @property
    def heard_at(self) -> float | None:
        """When it last answered, on the loop's clock; None before the first time."""

    @property
    def owed(self) -> int:
        """The number of calls that it has not answered yet, with those that timed out here."""

    def call(
        self,
        method: str,
        *args: object,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> "asyncio.Future[Value]":
        """Call a verb; see ``OwedCalls.call``."""

    async def settled(self) -> None:
        """Wait until nothing is owed: all is answered, or the connection that it was owed over is gone."""

    def close(self) -> None:
        """Call it no more; unanswered calls fail with ``ConnectionLost``."""
