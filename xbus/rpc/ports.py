"""The ports of a server: they take connections, bound the memory of each, read and send.

Plain connections over TCP are sockets of the event loop, and ZMTP 3 is spoken here: each byte is bounded where it
arrives, and no message changes threads. Encrypted connections have a ROUTER socket of libzmq. CURVE adds 33 bytes to
each frame, and lets nobody in without a key. Connections over ipc have one, too: the file of the socket says who may
come.
"""

import asyncio
import contextlib
import errno
import itertools
import logging
import math
import secrets
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import zmq

from xbus.accepting import Acceptor
from xbus.clock import Clock
from xbus.errors import ConfigurationError, ProtocolError
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context, router
from xbus.rpc.curve import KeyPair, serve_encrypted
from xbus.rpc.drain import MOST_FRAMES, Drain, bound_endpoint, send
from xbus.rpc.guard import BROKEN_PROTOCOL, ENDLESS, KEY_REVOKED, UNREAD_ANSWERS, ConnectionGuard, CutLog, TrafficLimits
from xbus.rpc.life_signs import LifeSigns, ask_for_life, keep_alive
from xbus.rpc.zmtp import HAS_EPOLL, PONG, ROUTER, Incoming, MessageLimits, SocketWatch, ZmtpStream, endpoint_of, listen

log = logging.getLogger(__name__)


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
    def stream(self) -> ZmtpStream | None:
        """Its stream, by which other threads may send, too; None where libzmq has it."""

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


def _nobody(key: str) -> bool:
    """Let no key in: there is no encrypted address."""
    return False


class RouterPort:
    """Reads and sends the messages of a ROUTER socket, and guards its connections.

    Args:
        owner: whose it is.
        context: of the whole process.
        options: of the socket.
        signs: how soon it notices that a peer is away, or does not say who it is.
    """

    def __init__(
        self, owner: PortOwner, context: Context, options: Mapping[zmq.SocketOption, int], signs: LifeSigns
    ) -> None:
        self._owner = owner
        self._socket = router(context)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        for option, value in options.items():
            self._socket.set(option, value)
        ask_for_life(self._socket, signs)
        self._allows: Callable[[str], bool] = _nobody
        self._drain = Drain(self._socket, self._serve, owner.may_read)
        self._guard = ConnectionGuard(owner.name, self._socket, self._drain, owner.traffic, owner.clock, self._ended)

    def bind(self, address: str, *, is_encrypted: bool) -> str:
        """Open an address; give it with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise bind_error(self._owner.name, address, error, error.errno) from error
        endpoint = bound_endpoint(self._socket)
        self._guard.listens(endpoint, is_encrypted=is_encrypted)
        return endpoint

    def encrypt(self, pair: KeyPair, domain: str, allows: Callable[[str], bool]) -> None:
        """Encrypt what comes to the addresses that are bound from now on.

        Args:
            pair: of the server.
            domain: under which the authenticator knows who may connect.
            allows: tells whether the peer with a public key may be there; asked for each message.
        """
        serve_encrypted(self._socket, pair, domain)
        self._allows = allows

    def cut_off_keys(self) -> None:
        """End the connections of keys that are not allowed any more."""
        self._guard.cut_off_keys(self._allows)

    def start(self) -> None:
        """Begin to read."""
        self._guard.start()
        self._drain.resume()

    def pause(self) -> None:
        """Read nothing until ``resume``; peers have to wait."""
        self._drain.pause()

    def resume(self) -> None:
        """Read again."""
        self._drain.resume()

    def read_all(self) -> None:
        """Read what has come until now, without asking whether it may."""
        self._drain.read_all()

    def check(self) -> None:
        """Look soon for messages to read; to be called after each ``send`` that no message led to."""
        self._drain.check()

    def knows(self, peer: bytes) -> bool:
        """Check whether an id may be that of a connection here: libzmq does not tell."""
        return True

    def address_of(self, peer: bytes) -> str:
        """Give the address of the connection with an id; empty where it is not known any more."""
        return self._guard.address_of(peer)

    def let_in(self, peer: bytes) -> None:
        """Note that the connection with an id has proven who it is."""
        self._guard.let_in(peer)

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message to the peer whose id is in front.

        Raises:
            PeerIsFull: the peer leaves too much unread.
            PeerIsGone: its connection has ended.
        """
        try:
            send(self._socket, frames)
        except zmq.Again:
            raise PeerIsFull from None
        except zmq.ZMQError:
            raise PeerIsGone from None
        self._guard.gave(frames)

    def close(self) -> None:
        """Close the socket; libzmq sends what waits for a moment longer."""
        self._drain.pause()
        self._guard.close()
        self._socket.close()

    def _serve(self, frames: list[bytes]) -> None:
        connection = self._guard.took(frames)
        if self._drain.reader.has_more:
            error = ProtocolError(f"a message has more than {MOST_FRAMES} frames")
            self._owner.on_violation(connection.address, error)
            self._guard.cut_off(connection, BROKEN_PROTOCOL)
        elif connection.key and not self._allows(connection.key):
            # It had connected before its key was taken away, and says its first word only now.
            self._guard.cut_off(connection, KEY_REVOKED)
        else:
            self._owner.serve(connection, frames, sum(map(len, frames)))

    def _ended(self, descriptor: int) -> None:
        self._owner.on_gone(None)


_LOOK_SECONDS = 1.0
"""Seconds between looks for peers that do not end their handshake. Fewer notice them sooner and cost wake-ups."""

_UNREAD_SECONDS = 0.05
"""Seconds between looks at what is left unread. More let it grow further beyond the bound of all connections."""

_READS_NOTHING_SECONDS = 2.0
"""Seconds after which a server that stops gives up peers that read nothing. Fewer lose answers to a peer that is busy;
more let a peer delay the stop."""

_LIFE = "life"
_LIFE_SECONDS = 0.5
"""The name of a timer, and the seconds between two signs of life for whoever is read no further."""

_OF_STRANGERS_AT_ONCE = 25
"""Messages of all peers together that have not proven who calls, in one turn of the loop. More keep the others waiting;
fewer make a crowd of logins slower."""

_ALLOWED_BYTES = 64 * 1024
"""The bytes of first messages in a turn of the loop for which the server is asked once. More let it take more than it
may; fewer cost calls."""

_PREFIX_BYTES = 12
"""The bytes that open the id of each peer, so that nobody guesses it."""

_NUMBER_BYTES = 6


class _Peer:
    """A connection.

    Args:
        port: whose it is.
        peer: its id.
        address: of its machine.
        since: when it began, on the loop's clock.
    """

    __slots__ = ("address", "is_known", "kept_as_stranger", "peer", "port", "read_in", "since", "stream")

    key = ""
    """The public key: without encryption there is none."""

    def __init__(self, port: "PlainPort", peer: bytes, address: str, since: float) -> None:
        self.port = port
        self.peer = peer
        self.address = address
        self.since = since
        self.is_known = False
        self.read_in = -1
        """The turn of the loop in which its last message came."""
        self.kept_as_stranger = 0
        """The bytes of its unfinished message, as those of strangers were counted last."""
        self.stream: ZmtpStream

    def take(self, message: list[bytes]) -> bool:
        port = self.port
        turn = port.turn.number
        size = self.stream.incoming.message_bytes
        if (
            self.read_in != turn
            and self.is_known
            and port.allowed_in == turn
            and port.allowed_bytes > 0
            and not port.line
        ):
            self.read_in = turn
            port.allowed_bytes -= size
        elif not port.may_read(self):
            return False
        port.serve(self, message, size)
        return True

    def is_ready(self, stream: ZmtpStream) -> None:
        self.port.is_ready(self)

    def keeps(self, stream: ZmtpStream, more: int) -> None:
        self.port.keeps(self, more)

    def is_full(self, stream: ZmtpStream) -> None:
        self.port.is_full(self)

    def has_room(self, stream: ZmtpStream) -> None:
        self.port.has_room(self)

    def ended(self, stream: ZmtpStream, error: ProtocolError | None) -> None:
        self.port.ended(self, error)


class PlainPort:
    """Takes plain connections, and bounds each of them and all together in bytes.

    Each peer has an id that nobody can foretell or claim. One that breaks the rules of ZMTP is heard no more.

    Args:
        owner: whose it is.
        frame_bytes: of a frame; a peer that sends a larger one is cut off.
        signs: how soon it notices that a peer is away, or does not say who it is.
        replies_unread: messages that one peer may leave unread; it gets no further ones.
        turn: of the loop; answers go at its end.
    """

    def __init__(
        self, owner: PortOwner, frame_bytes: float, signs: LifeSigns, replies_unread: int, turn: LoopTurn
    ) -> None:
        self._owner = owner
        self._signs = signs
        self._replies_unread = replies_unread
        self._limits = MessageLimits(MOST_FRAMES, frame_bytes, owner.traffic.message)
        self._cuts = CutLog(owner.name, owner.clock)
        self._loop = asyncio.get_running_loop()
        self._prefix = secrets.token_bytes(_PREFIX_BYTES)
        self._numbers = itertools.count(1)
        self._acceptor = Acceptor(owner.name, owner.clock, self._begin)
        self.peers: dict[bytes, _Peer] = {}
        self._shy: dict[bytes, _Peer] = {}
        """Those whose handshake is not over, in the order in which they came."""
        self._stopped: dict[bytes, _Peer] = {}
        """The peers that are read no further until ``resume``."""
        self._strangers: dict[bytes, _Peer] = {}
        """The peers that have not proven who calls, and wait for a turn."""
        self._of_strangers = 0
        self._next_turn: asyncio.Handle | None = None
        self._unread: dict[bytes, _Peer] = {}
        """The peers that leave something unread."""
        self._all_read = asyncio.Event()
        self._all_read.set()
        self._kept = 0
        self._kept_of_strangers = 0
        self._is_paused = True
        self.turn = turn
        self._watch = SocketWatch(turn) if HAS_EPOLL else None
        self.serve = owner.serve
        self.line = owner.line
        self.allowed_in = 0
        """The turn of the loop in which the server was asked last whether it may read."""
        self.allowed_bytes = 0
        """The bytes that may be read in that turn without asking again."""
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def bind(self, address: str) -> str:
        """Open an address; give it with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        try:
            listening = listen(address)
        except (OSError, ValueError) as error:
            raise bind_error(self._owner.name, address, error, getattr(error, "errno", None)) from error
        self._acceptor.sockets.append(listening)
        return endpoint_of(listening)

    def start(self) -> None:
        """Take connections, and begin to read."""
        self._is_paused = False
        self._acceptor.start()
        self._look()

    def pause(self) -> None:
        """Read nothing until ``resume``; peers have to wait."""
        self._is_paused = True
        self.allowed_bytes = 0

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        stopped, self._stopped = self._stopped, {}
        for peer in stopped.values():
            if peer.is_known:
                peer.stream.resume()
            else:
                self._wait_for_turn(peer)

    def read_all(self) -> None:
        """Read nothing ahead: the end of a connection is heard behind all that came before it."""

    def check(self) -> None:
        """Look for nothing: the loop itself tells of what comes."""

    def knows(self, peer: bytes) -> bool:
        """Check whether an id is that of a connection here."""
        return peer in self.peers

    def address_of(self, peer: bytes) -> str:
        """Give the address of the connection with an id; empty where it has ended."""
        known = self.peers.get(peer)
        return "" if known is None else known.address

    def let_in(self, peer: bytes) -> None:
        """Note that the connection with an id has proven who it is."""
        if known := self.peers.get(peer):
            known.is_known = True
            self.keeps(known, 0)

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message to the peer whose id is in front.

        Raises:
            PeerIsFull: the peer leaves too much unread.
            PeerIsGone: its connection has ended.
        """
        peer = self.peers.get(bytes(frames[0]))
        if peer is None:
            raise PeerIsGone
        if peer.stream.waits_for_room and peer.stream.unsent >= self._replies_unread:
            raise PeerIsFull
        peer.stream.send(frames[1:])

    async def all_read(self) -> None:
        """Wait until no peer leaves something unread that keeps us from sending more, as long as any of them reads."""
        before, left = math.inf, self._left_unread
        while 0 < left < before:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_read.wait(), _READS_NOTHING_SECONDS)
            before, left = left, self._left_unread

    @property
    def _left_unread(self) -> int:
        return sum(peer.stream.unsent_bytes for peer in self._unread.values())

    def close(self) -> None:
        """End all connections, after what can be sent at once."""
        for timer in self._timers.values():
            timer.cancel()
        if self._next_turn is not None:
            self._next_turn.cancel()
        self._acceptor.stop()
        for listening in self._acceptor.sockets:
            listening.close()
        for peer in list(self.peers.values()):
            peer.stream.close()
            self._forget(peer)
        if self._watch is not None:
            self._watch.close()

    # -- what the connections tell ---------------------------------------------------------------------------------

    def may_read(self, peer: _Peer) -> bool:
        """Check whether a message of a peer may be read now."""
        if self._is_paused or not self._owner.may_read():
            self._is_paused = True
            return self._stop(peer)
        if self.line and not self._owner.has_room_for(peer.peer):
            return self._stop(peer)
        self.allowed_in, self.allowed_bytes = self.turn.number, _ALLOWED_BYTES
        return peer.is_known or self._has_turn(peer)

    def _stop(self, peer: _Peer) -> bool:
        self._stopped[peer.peer] = peer
        if _LIFE not in self._timers:
            self._timers[_LIFE] = self._loop.call_later(_LIFE_SECONDS, self._show_life)
        return False

    def _show_life(self) -> None:
        """Give signs of life to peers that are read no further: what they ask for these is not read either."""
        del self._timers[_LIFE]
        for peer in self._stopped.values():
            if peer.stream.incoming.asks_for_life:
                peer.stream.send_bytes(PONG)
        if self._stopped:
            self._timers[_LIFE] = self._loop.call_later(_LIFE_SECONDS, self._show_life)

    def _has_turn(self, peer: _Peer) -> bool:
        """Check whether a message of a stranger may be read in this turn of the loop."""
        if self._of_strangers >= _OF_STRANGERS_AT_ONCE:
            self._wait_for_turn(peer)
            return False
        self._of_strangers += 1
        self._begin_turn_soon()
        return True

    def _wait_for_turn(self, peer: _Peer) -> None:
        self._strangers[peer.peer] = peer
        self._begin_turn_soon()

    def _begin_turn_soon(self) -> None:
        if self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        """Let the stranger read on that has waited for longest: it may take the whole turn."""
        self._next_turn = None
        self._of_strangers = 0
        if self._strangers:
            peer = self._strangers.pop(next(iter(self._strangers)))
            peer.stream.resume()
            if self._strangers:
                self._begin_turn_soon()

    def is_ready(self, peer: _Peer) -> None:
        """Note that a peer has said who it is."""
        self._shy.pop(peer.peer, None)

    def keeps(self, peer: _Peer, more: int) -> None:
        """Count what is kept of messages whose end has not come, and end the largest where they take too much."""
        self._kept += more
        of_stranger = 0 if peer.is_known else peer.stream.unfinished
        self._kept_of_strangers += of_stranger - peer.kept_as_stranger
        peer.kept_as_stranger = of_stranger
        if more > 0:
            while self._kept_of_strangers > self._owner.traffic.stranger:
                strangers = (one for one in self.peers.values() if not one.is_known)
                self._cut_off(max(strangers, key=lambda one: one.kept_as_stranger), ENDLESS)
            while self._kept > self._owner.traffic.ahead_of_all:
                self._cut_off(max(self.peers.values(), key=lambda one: one.stream.unfinished), ENDLESS)

    def is_full(self, peer: _Peer) -> None:
        """Note that a peer leaves so much unread that nothing more can be sent to it now."""
        self._unread[peer.peer] = peer
        self._all_read.clear()
        if "unread" not in self._timers:
            self._later("unread", _UNREAD_SECONDS, self._bound_unread)

    def has_room(self, peer: _Peer) -> None:
        """Note that a peer has read what it had left unread."""
        self._unread.pop(peer.peer, None)
        if not self._unread:
            self._all_read.set()

    def ended(self, peer: _Peer, error: ProtocolError | None) -> None:
        """Note that a peer has left, or has broken the rules."""
        self._forget(peer)
        if error is not None:
            self._owner.on_violation(peer.address, error)
            self._cuts.note(peer.address, BROKEN_PROTOCOL)
        self._owner.on_gone(peer.peer)

    # -- what goes on beside ---------------------------------------------------------------------------------------

    def _begin(self, connected: socket.socket, address: str) -> None:
        # Ids count up behind a secret, so that none comes twice and nobody can tell the next one.
        peer_id = self._prefix + next(self._numbers).to_bytes(_NUMBER_BYTES, "big")
        keep_alive(connected, self._signs)
        peer = _Peer(self, peer_id, address, self._loop.time())
        peer.stream = ZmtpStream(connected, Incoming(ROUTER, self._limits, (peer_id,)), peer, self._watch, self.turn)
        self.peers[peer_id] = self._shy[peer_id] = peer
        peer.stream.start()

    def _forget(self, peer: _Peer) -> None:
        for table in (self.peers, self._shy, self._stopped, self._strangers):
            table.pop(peer.peer, None)
        self.has_room(peer)
        self._kept -= peer.stream.unfinished
        self._kept_of_strangers -= peer.kept_as_stranger

    def _cut_off(self, peer: _Peer, reason: str) -> None:
        peer.stream.cut_off()
        self._forget(peer)
        self._cuts.note(peer.address, reason)
        self._owner.on_gone(peer.peer)

    def _bound_unread(self) -> None:
        """Cut those off that leave too much unread, and the largest of them where all together do."""
        traffic = self._owner.traffic
        unread = sorted(self._unread.values(), key=lambda one: one.stream.unsent_bytes, reverse=True)
        total = sum(one.stream.unsent_bytes for one in unread)
        for peer in unread:
            size = peer.stream.unsent_bytes
            if size <= traffic.unsent and total <= traffic.unsent_of_all:
                break
            self._cut_off(peer, UNREAD_ANSWERS)
            total -= size
        if self._unread:
            self._later("unread", _UNREAD_SECONDS, self._bound_unread)

    def _look(self) -> None:
        """End the connections that have not said who they are for too long."""
        before = self._loop.time() - self._signs.handshake_seconds
        for peer in [*itertools.takewhile(lambda one: one.since < before, self._shy.values())]:
            peer.stream.cut_off()
            self.ended(peer, ProtocolError("a peer does not end the handshake of ZMTP"))
        self._later("look", _LOOK_SECONDS, self._look)

    def _later(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        def now() -> None:
            del self._timers[name]
            act()

        self._timers[name] = self._loop.call_later(seconds, now)
