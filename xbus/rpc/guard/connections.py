"""The connections of a server: which descriptor each has, and how many bytes went through."""

from dataclasses import dataclass

UNKNOWN = -1
"""The descriptor of a connection of which nobody saw the beginning."""


@dataclass(eq=False, slots=True)
class Connection:
    """One connection, and the bytes of its frames as they were on the wire.

    Args:
        descriptor: of its socket.
        since: when it began, on the loop's clock.
        taken: bytes that the server has read of it.
        given: bytes that the server has sent to it.
        is_known: whether a call by it has proven who calls.
        peer: its id; empty before its first message.
        address: of the peer's machine, without the port, as the first message tells it.
        is_encrypted: whether it came to an encrypted address.
        key: its public key, from the first message on; empty without encryption.
        turns: the messages that the server has read of it.
        turns_at_look: the same when the guard looked last.
        ahead_at_look: the bytes that libzmq held then, read ahead.
    """

    descriptor: int
    since: float
    taken: int = 0
    given: int = 0
    is_known: bool = False
    peer: bytes = b""
    address: str = ""
    is_encrypted: bool = False
    key: str = ""
    turns: int = 0
    turns_at_look: int = 0
    ahead_at_look: int = 0

    stream = None
    """Sockets of libzmq belong to one thread."""


class ConnectionTable:
    """Finds the connection of a message, by libzmq's id.

    libzmq names a connection that begins or ends by its descriptor, and the sender of a message by an id. The system
    gives a descriptor to another connection as soon as it is free:

    1. A sends a message and leaves; its message still waits to be read.
    2. B connects and gets A's descriptor.
    3. The message of A is read, and its descriptor leads to B.
    4. A message of B is read. Its id is unknown, so the descriptor belongs to it from now on.
    """

    def __init__(self) -> None:
        self._by_id: dict[bytes, Connection] = {}
        self._by_descriptor: dict[int, Connection] = {}

    @property
    def is_empty(self) -> bool:
        """Check whether there is no connection, and nothing is known of an earlier one."""
        return not self._by_descriptor and not self._by_id

    def began(self, descriptor: int, now: float, *, is_encrypted: bool = False) -> None:
        """Note a connection before its first message."""
        self._by_descriptor[descriptor] = Connection(descriptor, now, is_encrypted=is_encrypted)

    def ended(self, descriptor: int) -> None:
        """Note the end of a connection; what it sent may still be read."""
        connection = self._by_descriptor.pop(descriptor, None)
        if connection is not None:
            connection.descriptor = UNKNOWN

    def find(self, peer: bytes) -> Connection | None:
        """Give the connection with an id, if it has sent a message."""
        return self._by_id.get(peer)

    def bind(self, peer: bytes, descriptor: int, now: float, key: str = "") -> Connection:
        """Give the connection whose first message came from an id, by its descriptor."""
        connection = self._by_descriptor.get(descriptor)
        if connection is None:
            connection = Connection(UNKNOWN, now)
        elif connection.peer:
            connection = self._replace(connection)
        # A peer that is not encrypted may claim any key.
        connection.peer, connection.key = peer, key if connection.is_encrypted else ""
        self._by_id[peer] = connection
        return connection

    def _replace(self, earlier: Connection) -> Connection:
        newer = Connection(earlier.descriptor, earlier.since, is_encrypted=earlier.is_encrypted)
        self._by_descriptor[earlier.descriptor] = newer
        earlier.descriptor = UNKNOWN
        return newer

    def open(self) -> list[Connection]:
        """List the connections that are there."""
        return list(self._by_descriptor.values())

    def forget_ended(self) -> None:
        """Forget the ids of connections that are gone; to be called when nothing of them waits to be read."""
        self._by_id = {peer: known for peer, known in self._by_id.items() if known.descriptor != UNKNOWN}
