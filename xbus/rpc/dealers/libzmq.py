"""A DEALER socket of libzmq, for encrypted connections and for those over ipc."""

import asyncio
import contextlib
from collections.abc import Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from xbus.errors import ConfigurationError
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context
from xbus.rpc.curve import BrokerAddress, call_encrypted
from xbus.rpc.dealers.dealer import RECONNECT_MOST_MS, RECONNECT_MS, ConnectionRefusal, DealerOwner
from xbus.rpc.drain import Drain, can_write
from xbus.rpc.life_signs import LifeSigns, ask_for_life
from xbus.rpc.multipart import send

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

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send a message; false if that is not possible now."""
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
            self._owner.connected()
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
