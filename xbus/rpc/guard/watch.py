"""The guard of one server's socket: it counts what goes through, and looks at all connections while there are some."""

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import zmq
from zmq.utils.monitor import parse_monitor_message

from xbus.clock import Clock
from xbus.rpc.codec import Frame
from xbus.rpc.drain import Drain, bytes_on_wire
from xbus.rpc.guard import tcp
from xbus.rpc.guard.connections import UNKNOWN, Connection, ConnectionTable
from xbus.rpc.guard.cuts import KEY_REVOKED, CutLog
from xbus.rpc.guard.limits import TrafficLimits, judge, measured

LOOK_SECONDS = 0.05
"""The least seconds between two looks. More let a fast peer take more memory, fewer cost more calls of the system."""

MOST_LOOKING = 0.05
"""The largest part of the time that looks take. Where connections are many they are looked at less often."""

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED


class ConnectionGuard:
    """Counts what goes through the connections of a socket, and cuts those off that go beyond the limits.

    Args:
        name: of the server, for the log.
        socket: the server's, before it is bound.
        drain: reads it.
        limits: of each connection and of all.
        clock: measures how often a cut is logged.
        on_end: called with the descriptor of a connection that has ended.
    """

    def __init__(
        self,
        name: str,
        socket: "zmq.Socket[bytes]",
        drain: Drain,
        limits: TrafficLimits,
        clock: Clock,
        on_end: Callable[[int], None],
    ) -> None:
        self._socket = socket
        self._drain = drain
        self._limits = limits
        self._on_end = on_end
        self._cuts = CutLog(name, clock)
        self._connections = ConnectionTable()
        self._loop = asyncio.get_running_loop()
        self._next_look: asyncio.TimerHandle | None = None
        """None before ``start``, and while there is no connection."""
        self._is_started = False
        self._ports: dict[int, bool] = {}
        """Of each port whether it is encrypted."""
        self._monitor = socket.get_monitor_socket(_EVENTS)
        self._monitor_drain = Drain(self._monitor, self._event)
        self._monitor_drain.resume()

    def listens(self, endpoint: str, *, is_encrypted: bool = False) -> None:
        """Note that the socket is bound to an endpoint; to be called before anybody can have come there."""
        if endpoint.startswith("tcp://"):
            self._ports[urlsplit(endpoint).port or 0] = is_encrypted

    def start(self) -> None:
        """Look from now on."""
        self._is_started = True
        self._look_soon()

    def close(self) -> None:
        """Look no more; to be called before the socket is closed."""
        self._is_started = False
        if self._next_look is not None:
            self._next_look.cancel()
        self._monitor_drain.pause()
        self._socket.disable_monitor()
        self._monitor.close()

    def took(self, frames: list[bytes]) -> Connection:
        """Count a message that was just read; give the connection by which it came."""
        connection = self.sender(frames[0])
        connection.taken += bytes_on_wire(frames, is_encrypted=connection.is_encrypted)
        connection.turns += 1
        return connection

    def sender(self, peer: bytes) -> Connection:
        """Give the connection of the peer with an id, of which something was just read."""
        connection = self._connections.find(peer)
        if connection is None:
            # libzmq tells of a connection before it hands its messages out.
            self._monitor_drain.read_all()
            reader = self._drain.reader
            descriptor, key = reader.sender_descriptor, reader.sender_key
            connection = self._connections.bind(peer, descriptor, self._loop.time(), key)
            connection.address = reader.sender_address
            self._look_soon()
        return connection

    def address_of(self, peer: bytes) -> str:
        """Give the address of the connection with an id; empty where it is not known any more."""
        connection = self._connections.find(peer)
        return "" if connection is None else connection.address

    def let_in(self, peer: bytes) -> None:
        """Note that the connection with an id has proven who it is."""
        connection = self._connections.find(peer)
        if connection is not None:
            connection.is_known = True

    def gave(self, frames: Sequence[Frame]) -> None:
        """Count a message that was just sent."""
        connection = self._connections.find(bytes(frames[0]))
        if connection is not None:
            connection.given += bytes_on_wire(frames, is_encrypted=connection.is_encrypted)

    def cut_off(self, connection: Connection, reason: str) -> None:
        """End a connection."""
        # The descriptor may have changed hands since the loop last looked.
        self._monitor_drain.read_all()
        if connection.descriptor == UNKNOWN:
            return
        peer = tcp.cut_off(connection.descriptor, self._ports)
        if peer is not None:
            self._cuts.note(peer, reason)

    def cut_off_keys(self, allows: Callable[[str], bool]) -> None:
        """End the encrypted connections whose key is not allowed any more."""
        for connection in self._connections.open():
            if connection.key and not allows(connection.key):
                self.cut_off(connection, KEY_REVOKED)

    def _event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)
        if event["event"] == zmq.EVENT_ACCEPTED:
            descriptor = event["value"]
            is_encrypted = self._ports.get(tcp.local_port(descriptor), False)
            self._connections.began(descriptor, self._loop.time(), is_encrypted=is_encrypted)
            self._look_soon()
        else:
            self._connections.ended(event["value"])
            self._on_end(event["value"])

    def _look_soon(self) -> None:
        if self._is_started and self._next_look is None:
            self._next_look = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._socket.closed:
            return
        began = self._loop.time()
        self._judge(began)
        took = self._loop.time() - began
        # A broker that nobody calls rests: each look wakes it.
        self._next_look = None
        if not self._connections.is_empty:
            self._next_look = self._loop.call_later(max(LOOK_SECONDS, took / MOST_LOOKING), self._look)

    def _judge(self, now: float) -> None:
        # A newcomer must not be judged by the figures of the connection that had its descriptor before.
        self._monitor_drain.read_all()
        all_read = not self._drain.can_read
        if all_read:
            self._connections.forget_ended()
        # Asking may have swallowed the edge of a message that came meanwhile.
        self._drain.check()
        connections = self._connections.open()
        # Who had two turns shows that everybody who waited before had one between them.
        most_turns = max((one.turns - one.turns_at_look for one in connections), default=0)
        all_passed = all_read or most_turns > 1
        found = [measured(one, now, all_passed=all_passed) for one in connections]
        judge([traffic for traffic in found if traffic is not None], self._limits, self.cut_off)
