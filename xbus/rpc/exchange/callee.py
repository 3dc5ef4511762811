"""The other side, as somebody sees it who calls its verbs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from xbus.rpc.codec import Value


class OverdueCall(NamedTuple):
    """A call that timed out, and that the other side still has in hand.

    Args:
        method: the verb.
        since: when its time was over, on the loop's clock.
    """

    method: str
    since: float


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

    @property
    def overdue(self) -> Sequence[OverdueCall]:
        """The calls that timed out here and are not answered yet, the first that timed out first."""

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
