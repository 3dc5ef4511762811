"""The protocols between a client and its dealer."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

from xbus.rpc.codec import Frame

RECONNECT_MS = 100
RECONNECT_MOST_MS = 2000
"""A dealer tries again after the first, then doubles the pause up to the second."""


class ConnectionRefusal(Enum):
    """Why the other side makes no connection."""

    KEY = auto()
    """It does not allow our key."""

    PROTOCOL = auto()
    """It speaks another protocol, or has another key than it should."""


class DealerOwner(Protocol):
    """The client of a dealer."""

    def tries(self) -> None:
        """Take note that the dealer tries to connect."""

    def connected(self) -> None:
        """Take note of a connection, over which calls may go from now on."""

    def refused(self, refusal: ConnectionRefusal) -> None:
        """Take note that the other side refuses us; the dealer asks again later."""

    def lost(self) -> None:
        """Take note that the connection was lost; the dealer makes another one."""

    def take(self, frames: list[bytes]) -> bool:
        """Take a message; always."""


class Dealer(Protocol):
    """A way to one server."""

    is_encrypted: bool
    is_closed: bool

    def connect(self) -> None:
        """Begin to connect.

        Raises:
            ConfigurationError: ``bad_address``.
        """

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send a message; false if that is not possible now. ``DealerOwner.connected`` tells when it is."""

    def read_all(self) -> None:
        """Hand on what has come until now."""

    def close(self) -> None:
        """Close the connection, after what can be sent at once."""
