"""A plain connection to a server over TCP: its socket belongs to the event loop, and ZMTP is spoken here."""

import asyncio
import math
import socket
from collections.abc import Sequence

from xbus.backoff import Backoff
from xbus.errors import ConfigurationError, ProtocolError
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Frame
from xbus.rpc.dealers.dealer import RECONNECT_MOST_MS, RECONNECT_MS, ConnectionRefusal, DealerOwner
from xbus.rpc.life_signs import MISSES, LifeSigns, keep_alive
from xbus.rpc.multipart import MOST_FRAMES
from xbus.rpc.zmtp import DEALER, PING, Incoming, MessageLimits, SocketWatch, TcpAddress, ZmtpStream, parse_way


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
        try:
            source, place = parse_way(self._endpoint)
            if not place.port:
                raise ValueError("Invalid argument")
        except ValueError as error:
            cause = f"can't connect to {self._endpoint} ({error})"
            raise ConfigurationError(cause, "write tcp://host:port or ipc://path", code="bad_address") from error
        self._owner.tries()
        self._attempt = self._loop.create_task(self._connect(source, place), name=f"connect to {self._endpoint}")

    def send(self, frames: Sequence[Frame]) -> bool:
        """Send a message; false if that is not possible now."""
        if not self._is_connected or self._stream is None:
            return False
        self._stream.send(frames)
        return True

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
            self._timer = self._loop.call_later(self._signs.heartbeat_seconds, self._ask_for_life)
        self._owner.connected()

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
