"""A STREAM socket that reads and sends messages as a ROUTER socket does."""

import contextlib
import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import zmq

from xbus.errors import ProtocolError
from xbus.rpc.ports.zmtp import GREETING, Incoming, MessageLimits, encode_message

_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_PREFIX_BYTES = 12
"""The bytes that open the id of each peer, so that nobody guesses it."""

_PARTS_AT_ONCE = 32
"""Parts of a long frame that are read in one go, of up to 8 KiB each. More read it faster and keep others waiting."""


@dataclass(eq=False, slots=True)
class _Peer:
    """A connection.

    Args:
        stream: its id at the socket.
        id: the same for everybody else.
        incoming: reads what it sends.
        since: when it began.
        descriptor: of its socket; -1 where libzmq does not tell.
        address: of its machine.
    """

    stream: bytes
    id: bytes
    incoming: Incoming
    since: float
    descriptor: int
    address: str


class WireObserver(Protocol):
    """Hears of the connections of a wire."""

    def began(self, peer: bytes, descriptor: int, address: str) -> None:
        """Note a connection, after it has called ``ended`` for those that have ended until now."""

    def has_ended(self, peer: bytes, address: str, error: ProtocolError) -> None:
        """Note that the wire has ended the connection of a peer that broke the rules."""


class PlainWire:
    """Reads and sends the messages of a STREAM socket.

    Each peer has an id that nobody can foretell or claim. One that breaks the rules of ZMTP is heard no more.

    Args:
        socket: the STREAM socket.
        limits: of a message.
        now: the time in seconds.
        observer: hears of connections.
    """

    sender_key = ""
    """The public key of the last sender: without encryption there is none."""

    has_more = False
    """Whether the rest of a message is still to be dropped: the connection ends instead."""

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        limits: MessageLimits,
        now: Callable[[], float],
        observer: WireObserver,
    ) -> None:
        self._socket = socket
        self._limits = limits
        self._now = now
        self._observer = observer
        # The counter of a STREAM socket can be foretold, and a peer at another socket may claim any id.
        self._prefix = secrets.token_bytes(_PREFIX_BYTES)
        self._peers: dict[bytes, _Peer] = {}
        self._shy: dict[bytes, _Peer] = {}
        """Those whose handshake is not over, in the order in which they came."""
        self._by_descriptor: dict[int, _Peer] = {}
        self._leaving: list[_Peer] = []
        """Those that have ended since the last look, so that libzmq's note of that may still come."""
        self._left: list[_Peer] = []
        """Those that had ended before."""
        self._unheard: set[bytes] = set()
        """Connections that are heard no more, of which something may wait to be read; and those of the look before."""
        self._unheard_before: set[bytes] = set()
        self._heard: _Peer | None = None
        """The peer whose bytes are read now."""
        self._last: _Peer | None = None

    @property
    def sender_address(self) -> str:
        """The address from which the last message came, without the port."""
        return "" if self._last is None else self._last.address

    @property
    def sender_descriptor(self) -> int:
        """The descriptor of the connection by which the last message came; -1 without one."""
        return -1 if self._last is None else self._last.descriptor

    @property
    def has_begun(self) -> bool:
        """Check whether bytes were taken from the socket that may hold further messages."""
        return self._heard is not None

    def knows(self, peer: bytes) -> bool:
        """Check whether an id is that of a connection here."""
        return self._find(peer) is not None

    def receive(self) -> list[bytes]:
        """Read a message.

        Returns:
            The frames, the peer's id in front; none where the bytes that came held no whole message.

        Raises:
            zmq.Again: nothing waits.
        """
        peer = self._heard
        if peer is None:
            peer = self._take_bytes()
            if peer is None:
                return []
        self._heard, self._last = None, peer
        try:
            message = peer.incoming.next_message()
        except ProtocolError as error:
            self._end(peer, error)
            return []
        if peer.incoming.is_ready:
            self._shy.pop(peer.stream, None)
        if peer.incoming.answers:
            self._answer(peer)
        if message is None:
            return []
        self._heard = peer
        return message

    def send(self, frames: list[bytes]) -> None:
        """Send a message to the peer whose id is in front.

        Raises:
            zmq.Again: the peer leaves too much unread.
            zmq.ZMQError: ``EHOSTUNREACH``, the peer is gone.
        """
        peer = self._find(frames[0])
        if peer is None:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        self._send_bytes(peer, encode_message(frames[1:]))

    def ended(self, descriptor: int) -> None:
        """Note that a connection has ended: libzmq leaves its own note out where its queue is full."""
        peer = self._by_descriptor.pop(descriptor, None)
        if peer is not None:
            self._leaving.append(peer)

    def forget_ended(self) -> None:
        """Forget connections whose end came before the last such call; to be called when nothing waits to be read."""
        for peer in self._left:
            self._forget(peer)
        self._left, self._leaving = self._leaving, []
        self._unheard_before, self._unheard = self._unheard, set()

    def end_silent(self, before: float) -> None:
        """End the connections that began before a moment and have not said who they are."""
        silent = list(itertools.takewhile(lambda peer: peer.since < before, self._shy.values()))
        for peer in silent:
            self._end(peer, ProtocolError("a peer does not end the handshake of ZMTP"))

    def _take_bytes(self) -> _Peer | None:
        """Take bytes of a connection, and more of a long frame; None where they are no end of a frame."""
        receive, peers = self._socket.recv, self._peers
        for _ in range(_PARTS_AT_ONCE):
            stream = receive(_NOW)
            peer = peers.get(stream)
            if peer is None:
                self._begin(stream, receive(_NOW, False))
                return None
            data = receive(_NOW)
            if not data:
                self._forget(peer)
                return None
            try:
                if peer.incoming.feed(data):
                    return peer
            except ProtocolError as error:
                self._end(peer, error)
                return None
        return None

    def _begin(self, stream: bytes, frame: zmq.Frame) -> None:
        """Note a new connection, of which libzmq tells by an empty frame."""
        if frame.bytes or stream in self._unheard or stream in self._unheard_before:
            return
        peer_id, descriptor, address = self._prefix + stream, int(frame.get(zmq.SRCFD)), str(frame.get("Peer-Address"))
        self._observer.began(peer_id, descriptor, address)
        peer = _Peer(stream, peer_id, Incoming(peer_id, self._limits), self._now(), descriptor, address)
        self._peers[stream] = self._shy[stream] = self._by_descriptor[descriptor] = peer
        self._try_to_send(peer, GREETING)

    def _answer(self, peer: _Peer) -> None:
        answer = b"".join(peer.incoming.answers)
        peer.incoming.answers.clear()
        self._try_to_send(peer, answer)

    def _end(self, peer: _Peer, error: ProtocolError) -> None:
        # By its id, as its descriptor may belong to somebody else by now. libzmq hands out nothing of it from then on.
        try:
            self._send_bytes(peer, b"")
        except zmq.ZMQError:
            # It is leaving, and libzmq still tells of that.
            self._unheard.add(peer.stream)
        if self._heard is peer:
            self._heard = None
        self._forget(peer)
        self._observer.has_ended(peer.id, peer.address, error)

    def _find(self, peer_id: bytes) -> _Peer | None:
        return self._peers.get(peer_id[_PREFIX_BYTES:]) if peer_id.startswith(self._prefix) else None

    def _forget(self, peer: _Peer) -> None:
        self._peers.pop(peer.stream, None)
        self._shy.pop(peer.stream, None)
        if self._by_descriptor.get(peer.descriptor) is peer:
            del self._by_descriptor[peer.descriptor]

    def _try_to_send(self, peer: _Peer, data: bytes) -> None:
        # Who takes nothing is leaving, or leaves so much unread that it needs no sign of life.
        with contextlib.suppress(zmq.ZMQError):
            self._send_bytes(peer, data)

    def _send_bytes(self, peer: _Peer, data: bytes) -> None:
        self._socket.send(peer.stream, _MORE)
        self._socket.send(data, _NOW)
