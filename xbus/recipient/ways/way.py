"""The face that the ways share by which the broker reaches a recipient."""

from asyncio import Future
from collections.abc import Callable
from typing import Protocol, TypeAlias

from xbus.rpc.codec import Value
from xbus.rpc.messages import ServingLimits

CallBack: TypeAlias = "Callable[..., Future[Value]]"
"""Calls a verb of the back, with the token of the role."""


class BrokerWay(Protocol):
    """A way by which the broker reaches the recipient."""

    @property
    def name(self) -> str:
        """The way, for the log."""

    @property
    def is_open(self) -> bool:
        """Check whether the broker can still come by it, as far as is known here."""

    @property
    def outlives_connections(self) -> bool:
        """Check whether a session may be registered several times: each connection needs a registration."""

    @property
    def caller(self) -> bytes:
        """The connection of the broker by which the call came that is carried out now."""

    def expect(self, token_hash: bytes) -> None:
        """Let nobody call who does not know the hash of the session's token.

        Args:
            token_hash: of the session by which the next registration is made.
        """

    async def register(self, call: CallBack) -> ServingLimits | None:
        """Register anew. What comes by the registration before is refused from now on.

        Raises:
            CallError: as the back answers.
        """

    def start(self) -> None:
        """Begin to take calls."""

    def close(self) -> None:
        """Take no more calls."""
