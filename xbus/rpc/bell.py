"""Wake-ups between the parts of the bus, in one process or several: ROUTER to DEALER over ``b2fsocket``, both ways.

A wake-up carries nothing and may get lost; whoever waits also looks by itself now and then. The end that binds rings at
all that have rung there. Over ipc these are processes of the same user. Over tcp without keys a stranger among them
hears it too, and takes it from nobody.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from xbus.clock import SystemClock
from xbus.errors import ConfigurationError
from xbus.rpc.context import Context, router
from xbus.rpc.curve import KeyPair, call_encrypted, serve_encrypted
from xbus.rpc.drain import Drain, bound_endpoint, send
from xbus.rpc.guard import ConnectionGuard, TrafficLimits

DOMAIN = "bell"
"""The name under which the authenticator knows who may ring."""

_FOR_OTHERS = 0o177
"""The bits of a mode that the file of an ipc address does not get."""

_UNHEARD = 1
"""One wake-up that waits is as good as many."""

RING_BYTES = 1024
"""The largest frame that is taken. A ring is empty; what opens a connection takes some dozen bytes."""

UNFINISHED_BYTES = 64 * 1024
"""A connection is cut off at so many bytes of an endless message, or of rings that nobody takes."""

RINGS_AT_ONCE = 50
"""The most rings that are heard in one go, before others wait for a moment."""

PAUSE_SECONDS = 0.01
"""That moment. More keep an honest ring waiting beside a flood, fewer have a flood take more of a core."""

MOST_RINGERS = 100
"""The most others that are rung back, those that rang last."""


class Bell:
    """One end of a bell wire: rings at the other end, and is rung from there. One end binds, the other connects.

    Args:
        context: of the whole process; for inproc the one of both ends.
        address: ``inproc://name``, ``ipc://path`` or ``tcp://host:port``.
        pair: the keys of both ends, for an encrypted wire; the authenticator lets them in under ``DOMAIN``.
    """

    def __init__(self, context: Context, address: str, pair: KeyPair | None = None) -> None:
        self._context = context
        self._address = address
        self._pair = pair
        self._rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] | None = None
        self._drain: Drain | None = None
        self._guard: ConnectionGuard | None = None
        # The one that rang last is the last.
        self._ringers: dict[bytes, None] = {}
        self._heard = 0
        self._counted_from = 0.0
        self._pause: asyncio.TimerHandle | None = None

    def bind(self) -> str:
        """Become the end that others connect to; return the address, with the port taken for 0.

        Raises:
            ConfigurationError: ``bad_address``, also when it is in use.
        """
        socket = router(self._context)
        socket.set(zmq.ROUTER_MANDATORY, 1)
        drain = self._open(socket)
        limits = TrafficLimits(UNFINISHED_BYTES, UNFINISHED_BYTES, ahead=UNFINISHED_BYTES, unsent=UNFINISHED_BYTES)
        self._guard = ConnectionGuard("bell", socket, drain, limits, SystemClock(), _ended)
        if self._pair is not None:
            serve_encrypted(socket, self._pair, DOMAIN)
            # With less libzmq 4.3.5 hands out nothing that came encrypted.
            socket.set(zmq.RCVHWM, _UNHEARD + 1)
        try:
            with _for_this_user_alone():
                socket.bind(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise _address_error("listen at", self._address, error) from error
        endpoint = bound_endpoint(socket)
        self._guard.listens(endpoint, is_encrypted=self._pair is not None)
        self._guard.start()
        drain.resume()
        return endpoint

    def connect(self) -> None:
        """Become the end that connects, whether the other exists yet or not.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        socket = self._context.socket(zmq.DEALER)
        drain = self._open(socket)
        if self._pair is not None:
            call_encrypted(socket, self._pair.public, self._pair)
        try:
            socket.connect(self._address)
        except zmq.ZMQError as error:
            self.close()
            raise _address_error("connect to", self._address, error) from error
        drain.resume()

    def _open(self, socket: "zmq.Socket[bytes]") -> Drain:
        socket.set(zmq.SNDHWM, _UNHEARD)
        socket.set(zmq.RCVHWM, _UNHEARD)
        socket.set(zmq.MAXMSGSIZE, RING_BYTES)
        socket.set(zmq.LINGER, 0)
        self._socket = socket
        self._drain = Drain(socket, self._hear, self._may_hear)
        return self._drain

    def ring(self) -> None:
        """Wake the other end; never blocks. To be called from the thread that made the bell."""
        if self._guard is None:
            self._ring()
        else:
            for ringer in list(self._ringers):
                self._ring(ringer)

    def _ring(self, *ringer: bytes) -> None:
        if self._socket is None or self._drain is None:
            return
        try:
            send(self._socket, [*ringer, b""])
        except zmq.Again:
            # The other end is away, or has not heard the last ring yet.
            return
        except zmq.ZMQError:
            # It is gone, and rings when it comes back.
            self._ringers.pop(ringer[0], None)
        self._drain.check()

    async def wait(self, timeout: float) -> bool:
        """Wait to be rung, at most ``timeout`` seconds; whether it was since the last wait."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def close(self) -> None:
        """Ring and hear no more."""
        if self._pause is not None:
            self._pause.cancel()
        if self._drain is not None:
            self._drain.pause()
        if self._guard is not None:
            self._guard.close()
        if self._socket is not None:
            self._socket.close()
        self._drain = self._guard = self._socket = None

    def _hear(self, frames: list[bytes]) -> None:
        self._heard += 1
        if self._guard is not None:
            self._guard.took(frames)
            self._ringers.pop(frames[0], None)
            self._ringers[frames[0]] = None
            if len(self._ringers) > MOST_RINGERS:
                del self._ringers[next(iter(self._ringers))]
        self._rung.set()

    def _may_hear(self) -> bool:
        now = self._loop.time()
        if now - self._counted_from > PAUSE_SECONDS:
            self._counted_from, self._heard = now, 0
        if self._heard < RINGS_AT_ONCE:
            return True
        self._pause = self._loop.call_later(PAUSE_SECONDS, self._hear_again)
        return False

    def _hear_again(self) -> None:
        if self._drain is not None:
            self._drain.resume()


@contextmanager
def _for_this_user_alone() -> Iterator[None]:
    # The mode of the process, so that the file has never had another one.
    before = os.umask(_FOR_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def _ended(descriptor: int) -> None:
    """Note nothing: who is gone is noticed at the next ring."""


def _address_error(doing: str, address: str, error: zmq.ZMQError) -> ConfigurationError:
    cause = f"can't {doing} {address} ({error})"
    return ConfigurationError(cause, "write inproc://name, ipc://path or tcp://host:port", code="bad_address")
