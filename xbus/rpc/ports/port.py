"""The protocols between a server and its ports."""

import errno
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from xbus.clock import Clock
from xbus.errors import ConfigurationError, ProtocolError
from xbus.rpc.codec import Frame
from xbus.rpc.guard import TrafficLimits


class PeerIsFull(Exception):
    """A peer leaves too much unread, so that nothing more is sent to it."""


class PeerIsGone(Exception):
    """The connection of a peer has ended."""


class CallerConnection(Protocol):
    """The connection by which a message came.

    Attributes:
        is_known: whether a call by it has proven who calls.
    """

    is_known: bool

    @property
    def peer(self) -> bytes:
        """Its id, which nobody else has had at this server."""

    @property
    def address(self) -> str:
        """The address of the peer's machine, without the port; over ipc the user and the process."""

    @property
    def key(self) -> str:
        """The public key of the peer; empty without encryption."""


@dataclass(frozen=True, slots=True)
class PortOwner:
    """The server of a port.

    Args:
        name: for the log.
        clock: measures how often a cut is logged.
        traffic: limits of each connection and of all.
        serve: gets each message, the connection by which it came, and the bytes of its frames.
        may_read: asked before each message.
        has_room_for: asked before each message with the id of its connection; after a no that is read no further until
            ``resume``. A port that can't stop a single connection need not ask.
        line: while it is empty each connection has room.
        on_gone: called with the id of a peer whose connection has ended; None where libzmq does not say whose.
        on_violation: called with the address of a peer that does not keep to the protocol.
    """

    name: str
    clock: Clock
    traffic: TrafficLimits
    serve: Callable[[CallerConnection, list[bytes], int], None]
    may_read: Callable[[], bool]
    has_room_for: Callable[[bytes], bool]
    line: Collection[object]
    on_gone: Callable[[bytes | None], None]
    on_violation: Callable[[str, ProtocolError], None]


class Port(Protocol):
    """Reads and sends messages at some addresses, and bounds what its connections may take."""

    def start(self) -> None:
        """Begin to read."""

    def pause(self) -> None:
        """Read nothing until ``resume``; peers have to wait."""

    def resume(self) -> None:
        """Read again."""

    def read_all(self) -> None:
        """Read what has come until now, without asking whether it may."""

    def check(self) -> None:
        """Look soon for messages to read; to be called after each ``send`` that no message led to.

        A ``send`` that failed may have swallowed the wake-up as well.
        """

    def knows(self, peer: bytes) -> bool:
        """Check whether an id may be that of a connection here."""

    def address_of(self, peer: bytes) -> str:
        """Give the address of the connection with an id; empty where it is not known any more."""

    def let_in(self, peer: bytes) -> None:
        """Note that the connection with an id has proven who it is."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message to the peer whose id is in front.

        Raises:
            PeerIsFull: the peer leaves too much unread.
            PeerIsGone: its connection has ended.
        """

    def close(self) -> None:
        """End all connections."""


def bind_error(name: str, address: str, error: Exception, number: int | None) -> ConfigurationError:
    """Make the error of an address that can't be bound.

    Args:
        number: of the error by the system.
    """
    if number == errno.EADDRINUSE:
        cause, cure, code = "is in use", "stop what listens there, or configure another port", "address_in_use"
    else:
        cause, cure, code = f"can't be bound ({error})", "write tcp://host:port or ipc://path", "bad_address"
    return ConfigurationError(f"{name}: {address} {cause}", cure, code=code)
