"""Reading a ZeroMQ socket inside an event loop, many messages per wake-up.

libzmq's file descriptor is edge-triggered: it wakes the loop when something *became* readable, and any send or read on
the socket may swallow that edge (zmq_getsockopt(3), ZMQ_FD). So a wake-up reads until nothing is left, and whoever
sends or asks outside of it says so with ``check``. Several times the rate of one await per message, at a quarter of
its CPU.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import zmq

from xbus.rpc.multipart import MultipartReader

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
