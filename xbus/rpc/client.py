"""The calling side: a DEALER socket, whose calls are sent in the order in which they are made."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import zmq
from zmq.utils.monitor import parse_monitor_message

from xbus.clock import Clock, SystemClock
from xbus.errors import ConfigurationError, ConnectionLost, Failed, ProtocolError
from xbus.rpc.codec import Value
from xbus.rpc.context import Context
from xbus.rpc.curve import BrokerAddress, call_encrypted, parse_address, shown
from xbus.rpc.drain import Drain, can_write
from xbus.rpc.exchange import Channels, OwedCalls
from xbus.rpc.frames import CHANNEL_CALL_FRAMES, decode_reply
from xbus.rpc.life_signs import NO_SIGNS, LifeSigns, ask_for_life
from xbus.rpc.multipart import send

log = logging.getLogger(__name__)

RECONNECT_MS = 100
RECONNECT_MOST_MS = 2000
"""libzmq tries again after the first, then doubles the pause up to the second."""

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
    zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _KEY_REFUSED | _OTHER_PROTOCOL | _CUT_SHORT
)


class Client:
    """Calls the verbs of one server.

    libzmq reconnects by itself, but no call outlives the connection that it was made for: when that is lost every
    unanswered call fails, and none of them reaches the next server at the address. The server may call back over the
    same connection, by the ``channels`` that are open here.

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
        life_signs: LifeSigns = NO_SIGNS,
    ) -> None:
        self.name = shown(name)
        clock = clock or SystemClock()
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._connected = False
        self._endpoint = ""
        self._is_encrypted = False
        self._again: asyncio.TimerHandle | None = None
        self._refusal: Failed | None = None
        self._calls = OwedCalls(self.name, clock, self._sent)
        self._socket = _dealer(context, max_message_bytes)
        ask_for_life(self._socket, life_signs)
        self._drain = Drain(self._socket, self._take)
        self._monitor = self._socket.get_monitor_socket(_CONNECTION_EVENTS)
        self._monitor_drain = Drain(self._monitor, self._connection_event)
        self.channels = Channels(self.name, clock, self._sent)
        """By them the other side may call us. All of them end with the connection."""

    @property
    def connection(self) -> None:
        """The connection is ours: the other side made none."""
        return None

    @property
    def heard_at(self) -> float | None:
        """When the server last answered, on the loop's clock; None before the first time."""
        return self._calls.heard_at

    def connect(self, address: str) -> None:
        """Begin to connect; calls made meanwhile are sent when the connection is there.

        Args:
            address: see :mod:`xbus.rpc.curve.address`.

        Raises:
            ConfigurationError: ``bad_address``, or the key file that it names can't be used.
        """
        self.connect_to(parse_address(address))

    def connect_to(self, place: BrokerAddress) -> None:
        """Begin to connect, as ``connect``, where the address was read before.

        Raises:
            ConfigurationError: ``bad_address``.
        """
        if place.own is not None:
            call_encrypted(self._socket, place.server_key, place.own)
            self._is_encrypted = True
        self._endpoint = place.endpoint
        try:
            self._socket.connect(place.endpoint)
        except zmq.ZMQError as error:
            cause = f"{self.name}: can't connect to {place.endpoint} ({error})"
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
        """Call a verb; see ``OwedCalls.call``. Without a connection the call waits for one, or for a refusal of one."""
        if self._socket.closed:
            return self._calls.refuse(method, self._closed_here())
        if self._refusal is not None:
            return self._calls.refuse(method, self._refusal)
        return self._calls.call(method, args, timeout, renewed)

    @property
    def owed(self) -> int:
        """The number of calls that the server has not answered yet, with those that timed out here."""
        return self._calls.owed

    async def settled(self) -> None:
        """Wait until nothing is owed: all is answered, or the connection that it was owed over is gone."""
        await self._calls.settled()

    def close(self) -> None:
        """Close the connection; unanswered calls fail with ``ConnectionLost``."""
        if self._socket.closed:
            return
        if self._again is not None:
            self._again.cancel()
        self._drain.pause()
        self._monitor_drain.pause()
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()
        self.channels.lose()
        self._calls.fail_all(self._closed_here())

    def _closed_here(self) -> ConnectionLost:
        return ConnectionLost(f"{self.name}: the connection was closed here")

    def _sent(self, frames: list[bytes]) -> bool:
        # libzmq reports a lost connection before it stops taking messages for it: messages sent then go nowhere.
        if not self._connected or self._socket.closed:
            return False
        try:
            send(self._socket, frames)
        except zmq.Again:
            return False
        self._drain.check()
        return True

    def _connection_event(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._connected = True
            self._refusal = None
            self._send_unsent()
        elif event in (_KEY_REFUSED, _OTHER_PROTOCOL) or (event == _CUT_SHORT and self._is_encrypted):
            self._refused(is_by_key=event == _KEY_REFUSED)
        elif self._connected:
            # An attempt to connect that fails is no loss: unsent calls wait for the next.
            self._connected = False
            self._lost()

    def _refused(self, *, is_by_key: bool) -> None:
        self._refusal = self._why_refused(is_by_key=is_by_key)
        extra = {"action": "connection_refused", "code": self._refusal.code}
        log.info("%s: no connection was made", self.name, extra=extra)
        self._calls.fail_all(self._refusal)
        if self._again is None:
            self._again = self._loop.call_later(RECONNECT_MOST_MS / 1000, self._connect_again)

    def _why_refused(self, *, is_by_key: bool) -> Failed:
        if is_by_key:
            return Failed(f"{self.name}: our key is not allowed there", "allow it: xbus keys allow", code="key_refused")
        if self._is_encrypted:
            cause, next_step = "has another key than the address says", "see that port and key are those of the broker"
        else:
            cause, next_step = "speaks another protocol, or only with encryption", "see that the address is right"
        return Failed(f"{self.name}: the other side {cause}", next_step, code="handshake_failed")

    def _connect_again(self) -> None:
        self._again = self._refusal = None
        with contextlib.suppress(zmq.ZMQError):  # libzmq may have forgotten the address by itself
            self._socket.disconnect(self._endpoint)
        self._socket.connect(self._endpoint)

    def _send_unsent(self) -> None:
        # Asking makes libzmq take note of the new connection, a send alone may look too early. Like a send it may
        # swallow the edge of an answer that is there already.
        self._drain.check()
        if not can_write(self._socket):
            # Maybe no next call comes that would look again: the callers of these wait.
            self._loop.call_later(ROOM_SECONDS, self._send_unsent_later)
            return
        self._calls.send_unsent()

    def _send_unsent_later(self) -> None:
        if self._connected and self._calls.has_unsent and not self._socket.closed:
            self._send_unsent()

    def _lost(self) -> None:
        # Calls of the other side that were read ahead are carried out no more: nobody would get the answers.
        self.channels.lose()
        # What was answered before the end counts as answered.
        self._drain.read_all()
        log.info("%s: connection lost", self.name, extra={"action": "connection_lost", "unanswered": self.owed})
        self._calls.fail_all(ConnectionLost(f"{self.name}: the connection was lost", "see whether the other side runs"))
        if self._on_lost is not None:
            self._on_lost()

    def _take(self, frames: list[bytes]) -> None:
        if len(frames) == CHANNEL_CALL_FRAMES:
            self.channels.take(frames)
            return
        try:
            reply = decode_reply(frames)
        except (ProtocolError, RecursionError) as error:
            extra = {"action": "unreadable_reply", "cause": str(error)}
            log.warning("%s: the server sends what is no reply", self.name, extra=extra)
            return
        self._calls.answered(reply)


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
