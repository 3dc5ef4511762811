"""The calling end of a connection: it connects, connects anew when the connection was lost, and carries messages.

A plain connection over TCP is a socket of the event loop. libzmq has those that are encrypted, and those over ipc.
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol, TypeAlias

import zmq
from zmq.utils.monitor import parse_monitor_message

from xbus.backoff import Backoff
from xbus.errors import ConfigurationError, ProtocolError
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context
from xbus.rpc.curve import BrokerAddress, call_encrypted
from xbus.rpc.drain import MOST_FRAMES, Drain, can_write, send
from xbus.rpc.life_signs import MISSES, LifeSigns, ask_for_life, keep_alive
from xbus.rpc.zmtp import DEALER, PING, Incoming, MessageLimits, SocketWatch, TcpAddress, ZmtpStream, parse_way

RECONNECT_MS = 100
RECONNECT_MOST_MS = 2000
"""A dealer tries again after the first, then doubles the pause up to the second."""


SendFrames: TypeAlias = Callable[[Sequence[Frame]], bool]
"""Sends the frames of a message; false if that is not possible now."""


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

    def connected(self, send: SendFrames) -> None:
        """Take note of a connection, or that it takes messages again.

        Args:
            send: sends over it, until ``lost`` is called.
        """

    def refused(self, refusal: ConnectionRefusal) -> None:
        """Take note that the other side refuses us; the dealer asks again later."""

    def missed(self) -> None:
        """Take note that a try to connect failed; the dealer tries again later."""

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

    def read_all(self) -> None:
        """Hand on what has come until now."""

    def close(self) -> None:
        """Close the connection, after what can be sent at once."""


ROOM_SECONDS = 0.01
"""Seconds between looks whether a new connection takes calls."""

LINGER_MS = 1000
"""Milliseconds for which libzmq goes on sending calls after ``close``."""

_KEY_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH
_OTHER_PROTOCOL = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
"""Behind these two libzmq does not connect again."""

_CUT_SHORT = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
"""The other side has ended the handshake: with encryption mostly because it has another key."""

_CONNECTION_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | _KEY_REFUSED
    | _OTHER_PROTOCOL
    | _CUT_SHORT
)


class LibzmqDealer:
    """Connects by libzmq, which connects anew by itself.

    Args:
        owner: gets what comes.
        context: of the whole process.
        place: of the server.
        max_message_bytes: a server that sends a larger frame is disconnected; -1 for no limit.
        signs: how soon it notices that nobody is at the other end.
    """

    def __init__(
        self, owner: DealerOwner, context: Context, place: BrokerAddress, max_message_bytes: int, signs: LifeSigns
    ) -> None:
        self._owner = owner
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._is_connected = False
        self._again: asyncio.TimerHandle | None = None
        self.is_encrypted = place.own is not None
        self.is_closed = False
        self._socket = _dealer(context, max_message_bytes)
        ask_for_life(self._socket, signs)
        if place.own is not None:
            call_encrypted(self._socket, place.server_key, place.own)
        self._drain = Drain(self._socket, owner.take)
        self._monitor = self._socket.get_monitor_socket(_CONNECTION_EVENTS)
        self._monitor_drain = Drain(self._monitor, self._connection_event)

    def connect(self) -> None:
        """Begin to connect.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        try:
            self._socket.connect(self._place.endpoint)
        except zmq.ZMQError as error:
            cause = f"can't connect to {self._place.endpoint} ({error})"
            raise ConfigurationError(cause, "write tcp://host:port or ipc://path", code="bad_address") from error
        self._drain.resume()
        self._monitor_drain.resume()

    def _send(self, frames: Sequence[Frame]) -> bool:
        # libzmq reports a lost connection before it stops taking messages for it: messages sent then go nowhere.
        if not self._is_connected or self.is_closed:
            return False
        try:
            send(self._socket, frames)
        except zmq.Again:
            return False
        self._drain.check()
        return True

    def read_all(self) -> None:
        """Hand on what has come until now."""
        self._drain.read_all()

    def close(self) -> None:
        """Close the socket; libzmq sends what waits for a moment longer."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._again is not None:
            self._again.cancel()
        self._drain.pause()
        self._monitor_drain.pause()
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()

    def _connection_event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_connected = True
            self._tell_connected()
        elif event in (_KEY_REFUSED, _OTHER_PROTOCOL) or (event == _CUT_SHORT and self.is_encrypted):
            if self._again is None:
                self._again = self._loop.call_later(RECONNECT_MOST_MS / 1000, self._connect_again)
            self._owner.refused(ConnectionRefusal.KEY if event == _KEY_REFUSED else ConnectionRefusal.PROTOCOL)
        elif event == zmq.EVENT_CONNECT_RETRIED:
            if not self._is_connected:
                self._owner.missed()
        elif self._is_connected:
            # An attempt to connect that fails is no loss: unsent calls wait for the next.
            self._is_connected = False
            self._owner.lost()

    def _connect_again(self) -> None:
        self._again = None
        self._owner.tries()
        with contextlib.suppress(zmq.ZMQError):  # libzmq may have forgotten the address by itself
            self._socket.disconnect(self._place.endpoint)
        self._socket.connect(self._place.endpoint)

    def _tell_connected(self) -> None:
        if not self._is_connected or self.is_closed:
            return
        # Asking makes libzmq take note of the new connection, a send alone may look too early. Like a send it may
        # swallow the edge of an answer that is there already.
        self._drain.check()
        if can_write(self._socket):
            self._owner.connected(self._send)
        else:
            # Maybe no next call comes that would look again: the callers of those that are unsent wait.
            self._loop.call_later(ROOM_SECONDS, self._tell_connected)


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


def way_to(endpoint: str) -> tuple[TcpAddress | None, TcpAddress]:
    """Read the address of a server by TCP, behind that of the caller where it names one.

    Raises:
        ConfigurationError: ``bad_address``.
    """
    try:
        source, place = parse_way(endpoint)
        if not place.port:
            raise ValueError("Invalid argument")
    except ValueError as error:
        cause = f"can't connect to {endpoint} ({error})"
        raise ConfigurationError(cause, "write tcp://host:port or ipc://path", code="bad_address") from error
    return source, place


class PlainDealer:
    """Connects, and connects anew after each loss.

    Args:
        owner: gets what comes.
        endpoint: of the server, ``tcp://host:port``.
        max_message_bytes: a server that sends a larger frame is disconnected; -1 for no limit.
        signs: how soon it notices that nobody is at the other end.
        turn: messages go at its end, where no ``watch`` is given.
        watch: tells when there is something to read.
    """

    is_encrypted = False

    def __init__(
        self,
        owner: DealerOwner,
        endpoint: str,
        max_message_bytes: int,
        signs: LifeSigns,
        turn: LoopTurn,
        watch: SocketWatch | None = None,
    ) -> None:
        self._owner = owner
        self.take = owner.take
        self._endpoint = endpoint
        self._signs = signs
        self._turn = turn
        self._watch = watch
        most = math.inf if max_message_bytes < 0 else max_message_bytes
        self._limits = MessageLimits(MOST_FRAMES, most, math.inf)
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(RECONNECT_MS / 1000, RECONNECT_MOST_MS / 1000)
        self._attempt: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stream: ZmtpStream | None = None
        self._is_connected = False
        self._missed = 0
        self.is_closed = False

    def connect(self) -> None:
        """Begin to connect.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        source, place = way_to(self._endpoint)
        self._owner.tries()
        self._attempt = self._loop.create_task(self._connect(source, place), name=f"connect to {self._endpoint}")

    def read_all(self) -> None:
        """Hand nothing on: the end of a connection is heard behind all that came before it."""

    def close(self) -> None:
        """Close the connection, after what can be sent at once."""
        self.is_closed = True
        self._is_connected = False
        self._wait_no_longer()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._stream is not None:
            self._stream.close()

    async def _connect(self, source: TcpAddress | None, place: TcpAddress) -> None:
        """Try once; the end of the handshake is waited for by a timer."""
        try:
            async with asyncio.timeout(self._signs.handshake_seconds):
                connected = await self._open(source, place)
        except (OSError, TimeoutError, UnicodeError):
            self._connect_later(self._backoff.next())
            self._owner.missed()
            return
        self._stream = ZmtpStream(connected, Incoming(DEALER, self._limits), self, self._watch, self._turn)
        self._timer = self._loop.call_later(self._signs.handshake_seconds, self._give_up_handshake)
        self._stream.start()

    async def _open(self, source: TcpAddress | None, place: TcpAddress) -> socket.socket:
        family, target = await self._resolve(place)
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            if source is not None:
                opened.bind((await self._resolve(source))[1])
            await self._loop.sock_connect(opened, target)
            if opened.getsockname() == opened.getpeername():
                # The system chose the port that we call, where nobody listens: we would be our own server, and keep
                # the port from the real one.
                raise ConnectionRefusedError(f"nobody listens at {self._endpoint}")
            keep_alive(opened, self._signs)
        except BaseException:
            opened.close()
            raise
        return opened

    async def _resolve(self, place: TcpAddress) -> tuple[int, tuple[str, int]]:
        found = await self._loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        # ZeroMQ means IPv4 where a name has both.
        family, _, _, _, resolved = min(found, key=lambda one: one[0] != socket.AF_INET)
        return family, (str(resolved[0]), int(resolved[1]))

    def _connect_later(self, seconds: float) -> None:
        self._wait_no_longer()
        if not self.is_closed:
            self._timer = self._loop.call_later(seconds, self.connect)

    def _give_up_handshake(self) -> None:
        if self._stream is not None:
            self._stream.cut_off()
            self.ended(self._stream, None)

    def _ask_for_life(self) -> None:
        """Ask the other side for a sign of life, and end the connection where several are missing."""
        stream = self._stream
        if stream is None:
            return
        self._missed = 0 if stream.has_heard else self._missed + 1
        stream.has_heard = False
        if self._missed > MISSES:
            stream.cut_off()
            self.ended(stream, None)
            return
        stream.send_bytes(PING)
        self._timer = self._loop.call_later(self._signs.heartbeat_seconds, self._ask_for_life)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- what the stream tells -------------------------------------------------------------------------------------

    def is_ready(self, stream: ZmtpStream) -> None:
        """Take note that the handshake is over."""
        self._wait_no_longer()
        self._backoff.reset()
        self._is_connected = True
        self._missed = 0
        if self._signs.heartbeat_seconds:
            self._ask_for_life()  # at once: a server may read nothing soon, and shows life to whoever has asked
        self._owner.connected(stream.send)

    def keeps(self, stream: ZmtpStream, more: int) -> None:
        """Bound nothing more: the server is trusted with what a client asked for."""

    def is_full(self, stream: ZmtpStream) -> None:
        """Bound nothing: callers bound what they have under way."""

    def has_room(self, stream: ZmtpStream) -> None:
        """Bound nothing: callers bound what they have under way."""

    def ended(self, stream: ZmtpStream, error: ProtocolError | None) -> None:
        """Connect anew; a server that speaks something else is asked again later."""
        was_connected, self._is_connected, self._stream = self._is_connected, False, None
        if error is not None and not was_connected:
            self._connect_later(RECONNECT_MOST_MS / 1000)
            self._owner.refused(ConnectionRefusal.PROTOCOL)
            return
        self._connect_later(self._backoff.next())
        # An attempt to connect that fails is no loss: unsent calls wait for the next.
        if was_connected:
            self._owner.lost()
        else:
            self._owner.missed()
