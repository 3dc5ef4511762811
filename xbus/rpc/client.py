"""The calling side: a DEALER socket, whose calls are sent in the order in which they are made."""

import asyncio
import itertools
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.utils.monitor import parse_monitor_message

from xbus.clock import Clock, SystemClock
from xbus.errors import CallError, ConfigurationError, ConnectionLost, ProtocolError, TimedOut
from xbus.rpc.codec import Value
from xbus.rpc.context import Context
from xbus.rpc.drain import Drain, can_write
from xbus.rpc.frames import decode_reply, encode_request, sender_prefix
from xbus.rpc.multipart import send

log = logging.getLogger(__name__)

RECONNECT_MS = 100
RECONNECT_MOST_MS = 2000
"""libzmq tries again after the first, then doubles the pause up to the second."""

ROOM_SECONDS = 0.01
"""Seconds between looks whether a new connection takes calls."""

LINGER_MS = 1000
"""Milliseconds for which libzmq goes on sending calls after ``close``."""

MISSES = 3
"""The most signs of life that may be missing."""

_REQUEST_IDS = 2**32
_CONNECTION_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


@dataclass(frozen=True, slots=True)
class LifeSigns:
    """Seconds after which a client notices that nobody is at the other end. Fewer notice sooner and cost messages.

    Args:
        heartbeat_seconds: how often ZMTP asks the server for a sign of life; three times that without one and the
            connection counts as lost. 0 for never, as it must be where the server's libzmq may be older than 4.2: that
            hands the question to aiozmq as if it were a call, and does not answer it.
        keepalive_seconds: the same asked by TCP, which every server's machine answers.
        handshake_seconds: a connection that is taken and says nothing, as by a proxy before a server that is away, is
            abandoned after this.
    """

    heartbeat_seconds: float = 0
    keepalive_seconds: int = 0
    handshake_seconds: float = 3.0


class Client:
    """Calls the verbs of one server.

    libzmq reconnects by itself, but no call outlives the connection that it was made for: when that is lost every
    unanswered call fails, and none of them reaches the next server at the address.

    Args:
        context: of the whole process.
        name: whom it calls, for the errors.
        clock: stamps the requests.
        max_message_bytes: a server that sends a larger frame is disconnected; -1 for no limit.
        on_lost: called once for each lost connection, after its calls have failed.
        life_signs: how soon it notices that nobody is at the other end.
    """

    def __init__(
        self,
        context: Context,
        *,
        name: str,
        clock: Clock | None = None,
        max_message_bytes: int = -1,
        on_lost: Callable[[], None] | None = None,
        life_signs: LifeSigns = LifeSigns(),
    ) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._sender = sender_prefix(os.getpid(), secrets.randbits(16))
        self._ids = itertools.count()
        self._connected = False
        self._calls: dict[int, _AwaitedCall] = {}
        self.heard_at: float | None = None
        """When the server last answered, on the loop's clock; None before the first time."""
        self._unsent: dict[int, list[bytes]] = {}
        self._settled = asyncio.Event()
        self._settled.set()
        self._socket = _dealer(context, max_message_bytes)
        _ask_for_life(self._socket, life_signs)
        self._drain = Drain(self._socket, self._answered)
        self._monitor = self._socket.get_monitor_socket(_CONNECTION_EVENTS)
        self._monitor_drain = Drain(self._monitor, self._connection_event)

    def connect(self, address: str) -> None:
        """Begin to connect; calls made meanwhile are sent when the connection is there.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            cause = f"{self.name}: can't connect to {address} ({error})"
            raise ConfigurationError(cause, "write tcp://host:port or ipc://path", code="bad_address") from error
        self._drain.resume()
        self._monitor_drain.resume()

    def call(
        self,
        method: str,
        *args: object,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> "asyncio.Future[Value]":
        """Call a verb; the request is sent before this returns.

        Args:
            timeout: seconds after which the future fails with ``TimedOut``; the call stays owed.
            renewed: asked when that time is over: when, on the loop's clock, it began anew, as the server showed that
                it gets on with the call; None for never.

        Returns:
            A future of the answer. It fails with ``Refused`` or ``Failed`` as the server says, with ``TimedOut``, or
            with ``ConnectionLost``.

        Raises:
            ProtocolError: an argument can't be encoded.
        """
        call = _AwaitedCall(method, self._loop.create_future())
        if self._socket.closed:
            call.finish(None, self._closed_here())
            return call.future
        request_id = next(self._ids) % _REQUEST_IDS
        frames = encode_request(self._sender, request_id, self._clock.now().timestamp(), method, args)
        if timeout is not None:
            call.timer = self._loop.call_later(timeout, self._timed_out, request_id, timeout, renewed)
        self._calls[request_id] = call
        self._settled.clear()
        self._send(request_id, frames)
        return call.future

    @property
    def owed(self) -> int:
        """The number of calls that the server has not answered yet, with those that timed out here."""
        return len(self._calls)

    async def settled(self) -> None:
        """Wait until nothing is owed: all is answered, or the connection that it was owed over is gone."""
        await self._settled.wait()

    def close(self) -> None:
        """Close the connection; unanswered calls fail with ``ConnectionLost``."""
        if self._socket.closed:
            return
        self._drain.pause()
        self._monitor_drain.pause()
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self._fail_all(self._closed_here())

    def _closed_here(self) -> ConnectionLost:
        return ConnectionLost(f"{self.name}: the connection was closed here")

    def _send(self, request_id: int, frames: list[bytes]) -> None:
        # libzmq reports a lost connection before it stops taking messages for it: messages sent then go nowhere.
        if self._connected and self._sent(frames):
            self._drain.check()
        else:
            self._unsent[request_id] = frames

    def _sent(self, frames: list[bytes]) -> bool:
        try:
            send(self._socket, frames)
        except zmq.Again:
            return False
        return True

    def _connection_event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._connected = True
            self._send_unsent()
        elif self._connected:
            # An attempt to connect that fails is no loss: unsent calls wait for the next.
            self._connected = False
            self._lost()

    def _send_unsent(self) -> None:
        # Asking makes libzmq take note of the new connection, a send alone may look too early. Like a send it may
        # swallow the edge of an answer that is there already.
        self._drain.check()
        if not can_write(self._socket):
            # Maybe no next call comes that would look again: the callers of these wait.
            self._loop.call_later(ROOM_SECONDS, self._send_unsent_later)
            return
        unsent, self._unsent = self._unsent, {}
        for request_id, frames in unsent.items():
            self._send(request_id, frames)

    def _send_unsent_later(self) -> None:
        if self._connected and self._unsent and not self._socket.closed:
            self._send_unsent()

    def _lost(self) -> None:
        # What was answered before the end counts as answered.
        self._drain.read_all()
        log.info("%s: connection lost", self.name, extra={"action": "connection_lost", "unanswered": self.owed})
        self._fail_all(ConnectionLost(f"{self.name}: the connection was lost", "see whether the other side runs"))
        if self._on_lost is not None:
            self._on_lost()

    def _fail_all(self, error: CallError) -> None:
        calls, self._calls, self._unsent = self._calls, {}, {}
        self._settled.set()
        for call in calls.values():
            call.finish(None, error)

    def _timed_out(self, request_id: int, timeout: float, renewed: Callable[[], float | None] | None) -> None:
        call = self._calls[request_id]
        began_anew = None if renewed is None else renewed()
        if began_anew is not None and began_anew + timeout > self._loop.time():
            call.timer = self._loop.call_at(began_anew + timeout, self._timed_out, request_id, timeout, renewed)
            return
        if self._unsent.pop(request_id, None):
            self._forget(request_id)
            cause = f"{self.name}: no connection for {call.method} within {timeout:.3g} s"
            call.finish(None, TimedOut(cause, "see whether the other side runs, and listens there"))
        else:
            call.finish(None, TimedOut(f"{self.name}: no answer to {call.method} within {timeout:.3g} s"))

    def _answered(self, frames: list[bytes]) -> None:
        try:
            reply = decode_reply(frames)
        except (ProtocolError, RecursionError) as error:
            extra = {"action": "unreadable_reply", "cause": str(error)}
            log.warning("%s: the server sends what is no reply", self.name, extra=extra)
            return
        self.heard_at = self._loop.time()
        call = self._forget(reply.id)
        if call is not None:
            call.finish(reply.answer, reply.error)

    def _forget(self, request_id: int) -> "_AwaitedCall | None":
        call = self._calls.pop(request_id, None)
        if not self._calls:
            self._settled.set()
        return call


@dataclass(slots=True)
class _AwaitedCall:
    """A call that is owed an answer."""

    method: str
    future: "asyncio.Future[Value]"
    timer: asyncio.TimerHandle | None = None

    def finish(self, answer: Value, error: CallError | None) -> None:
        """Give the answer to whoever still waits for it."""
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(answer)


def _dealer(context: Context, max_message_bytes: int) -> "zmq.Socket[bytes]":
    socket = context.socket(zmq.DEALER)
    # Calls are never queued without a connection, and queued calls end with it: the next server must not get them.
    socket.set(zmq.IMMEDIATE, 1)
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.MAXMSGSIZE, max_message_bytes)
    socket.set(zmq.LINGER, LINGER_MS)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST_MS)
    return socket


def _ask_for_life(socket: "zmq.Socket[bytes]", signs: LifeSigns) -> None:
    socket.set(zmq.HANDSHAKE_IVL, int(signs.handshake_seconds * 1000))
    heartbeat_ms, keepalive_seconds = int(signs.heartbeat_seconds * 1000), signs.keepalive_seconds
    if heartbeat_ms:
        socket.set(zmq.HEARTBEAT_IVL, heartbeat_ms)
        socket.set(zmq.HEARTBEAT_TIMEOUT, MISSES * heartbeat_ms)
    if keepalive_seconds:
        socket.set(zmq.TCP_KEEPALIVE, 1)
        socket.set(zmq.TCP_KEEPALIVE_IDLE, keepalive_seconds)
        socket.set(zmq.TCP_KEEPALIVE_INTVL, keepalive_seconds)
        socket.set(zmq.TCP_KEEPALIVE_CNT, MISSES)
        # TCP does not ask while something that it sent is unacknowledged.
        socket.set(zmq.TCP_MAXRT, MISSES * keepalive_seconds * 1000)
