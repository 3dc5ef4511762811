"""Reading a ZeroMQ socket inside an event loop, many messages per wake-up.

libzmq's file descriptor is edge-triggered: it wakes the loop when something *became* readable, and any send or read on
the socket may swallow that edge (zmq_getsockopt(3), ZMQ_FD). So a wake-up reads until nothing is left, and whoever
sends or asks outside of it says so with ``check``. Several times the rate of one await per message, at a quarter of
its CPU.

A message has several frames. They are sent and read as by pyzmq's ``send_multipart`` and ``recv_multipart``, at less
than half of their cost, which counts as each call takes five frames in and three out: flags are plain ints, since
arithmetic on enums is slow, and ``Frame.more`` is asked in place of a socket option per frame.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import zmq

from xbus.rpc.codec import Frame

MOST_FRAMES = 16
"""The most frames of a message. A call has five with the caller's id; a proxy may put some before them."""

_DROPPED_AT_ONCE = 50
"""Frames of a message with too many that are dropped in one go. More end it sooner and keep others waiting."""

# The headers of frames by ZMTP 3, https://rfc.zeromq.org/spec/23.
_MOST_SHORT = 255
_SHORT_HEADER = 2
_LONG_HEADER = 9

_SEALED = 33
"""The bytes that CURVE adds to each frame: name, nonce, seal and flags, https://rfc.zeromq.org/spec/26."""

_LAST = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)


def send(socket: "zmq.Socket[bytes]", frames: Sequence[Frame]) -> None:
    """Send a message.

    Raises:
        zmq.Again: the socket has no room for it now, or no connection.
        zmq.ZMQError: ``EHOSTUNREACH`` of a ROUTER socket that does not know the peer.
    """
    last = len(frames) - 1
    for frame in frames[:last]:
        socket.send(bytes(frame), _MORE)
    socket.send(bytes(frames[last]), _LAST)


def bytes_on_wire(frames: Sequence[Frame], *, is_encrypted: bool = False) -> int:
    """Count the bytes of a message of a ROUTER as on the wire, without the peer's id in front."""
    seal = _SEALED if is_encrypted else 0
    size = -len(frames[0]) - seal - _SHORT_HEADER
    for frame in frames:
        length = len(frame) + seal
        size += length + (_SHORT_HEADER if length <= _MOST_SHORT else _LONG_HEADER)
    return size


class MultipartReader:
    """Reads the messages of a socket.

    Only the first frames of a message with too many are kept. The others are read in portions and dropped.
    """

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        # libzmq knows of a frame whence it came.
        self._first: zmq.Frame | None = None
        self.has_more = False
        """Whether the rest of the last message is still to be dropped."""

    @property
    def sender_address(self) -> str:
        """The address from which the last message came, without the port; over ipc the user and the process.

        It is empty where libzmq knows none: of a peer that speaks ZMTP 1 or 2, and within a process.
        """
        try:
            return "" if self._first is None else str(self._first.get("Peer-Address"))
        except zmq.ZMQError:
            return ""

    @property
    def sender_key(self) -> str:
        """The public key of the peer that sent the last message; empty without encryption."""
        try:
            return "" if self._first is None else str(self._first.get("User-Id"))
        except zmq.ZMQError:
            return ""

    @property
    def sender_descriptor(self) -> int:
        """The descriptor of the connection by which the last message came; -1 without one."""
        try:
            return -1 if self._first is None else int(self._first.get(zmq.SRCFD))
        except zmq.ZMQError:
            # Nor does libzmq know the descriptor of such peers.
            return -1

    def receive(self) -> list[bytes]:
        """Read a message, or drop a portion of what the last one has too much.

        Returns:
            The frames; none where frames were dropped.

        Raises:
            zmq.Again: no message waits.
        """
        if self.has_more:
            self._drop()
            return []
        receive = self._socket.recv
        self._first = frame = receive(_LAST, False)
        frames = [frame.bytes]
        while frame.more:
            if len(frames) == MOST_FRAMES:
                self.has_more = True
                break
            frame = receive(_LAST, False)
            frames.append(frame.bytes)
        return frames

    def _drop(self) -> None:
        for _ in range(_DROPPED_AT_ONCE):
            if not self._socket.recv(_LAST, False).more:
                self.has_more = False
                return


MESSAGES_PER_TURN = 100
"""After so many the other tasks of the loop get their turn."""

MESSAGES_AT_ONCE = 10_000
"""The most messages of ``read_all``: more than a peer may have sent ahead."""

_POLLIN = int(zmq.POLLIN)
_POLLOUT = int(zmq.POLLOUT)


def always() -> bool:
    """Admit every message."""
    return True


def can_read(socket: "zmq.Socket[bytes]") -> bool:
    """Check whether a message waits in the socket."""
    return bool(cast(int, socket.getsockopt(zmq.EVENTS)) & _POLLIN)


def can_write(socket: "zmq.Socket[bytes]") -> bool:
    """Check whether the socket has a connection with room for a message."""
    return bool(cast(int, socket.getsockopt(zmq.EVENTS)) & _POLLOUT)


def bound_endpoint(socket: "zmq.Socket[bytes]") -> str:
    """Give the address that the socket was last bound to, with the port that it got."""
    return cast(bytes, socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()


class Drain:
    """Hands each message of a socket to ``on_message``, in order of arrival.

    Args:
        socket: a plain, non-blocking use of it; the drain does not close it.
        on_message: gets the frames of one message; what it raises reaches the loop's exception handler.
        may_read: asked before each message. Once it says no, nothing is read until ``resume``: libzmq's queue fills,
            then TCP's, and the peer has to wait.
    """

    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        on_message: Callable[[list[bytes]], object],
        may_read: Callable[[], bool] = always,
    ) -> None:
        self._socket = socket
        self.reader = MultipartReader(socket)
        self._on_message = on_message
        self._may_read = may_read
        self._loop = asyncio.get_running_loop()
        self._descriptor = cast(int, socket.getsockopt(zmq.FD))
        self._reading = False
        self._next_turn: asyncio.Handle | None = None

    @property
    def can_read(self) -> bool:
        """Check whether something waits to be read."""
        return can_read(self._socket)

    def resume(self) -> None:
        """Start to read, or go on with it."""
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._read)
            self.check()

    def pause(self) -> None:
        """Read nothing more until ``resume``; call it before the socket is closed."""
        if self._reading:
            self._reading = False
            # The descriptor stays readable while messages wait: watched, it would keep the loop spinning.
            self._loop.remove_reader(self._descriptor)
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None

    def check(self) -> None:
        """Look soon for messages to read; call it after each send from outside ``on_message``."""
        if self._reading and self._next_turn is None:
            self._next_turn = self._loop.call_soon(self._look)

    def read_all(self) -> None:
        """Read what is there now, without asking ``may_read``."""
        if not self.can_read:
            return
        try:
            # Bounded, as others may go on sending for ever.
            for _ in range(MESSAGES_AT_ONCE):
                self._hand_on(self.reader.receive())
        except zmq.Again:
            pass
        self.check()

    def _hand_on(self, frames: list[bytes]) -> None:
        if frames:
            self._on_message(frames)

    def _look(self) -> None:
        self._next_turn = None
        # The whole context may have been closed meanwhile, as when a broker can't start.
        if not self._socket.closed and self.can_read:
            self._read()

    def _read(self) -> None:
        try:
            for _ in range(MESSAGES_PER_TURN):
                if not self._may_read():
                    self.pause()
                if not self._reading:
                    return
                self._hand_on(self.reader.receive())
        except zmq.Again:
            # A reply sent by on_message may have swallowed the edge of a message that came after the last read.
            if not self.can_read:
                return
        except Exception:
            # A message that brings its handler down must not end the reading of those behind it.
            self.check()
            raise
        self.check()
