"""The answering side: a server opens the ports of an address, and carries out calls in the order of their arrival."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import zmq

from xbus.clock import Clock, SystemClock
from xbus.errors import ConnectionLost, ProtocolError
from xbus.log_throttle import LogThrottle
from xbus.loop_turn import LoopTurn
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context
from xbus.rpc.curve import KeyPair
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.drain import always
from xbus.rpc.exchange import Answering, Call, CallQueue, PeerClient, PeerClients, PeerWire, Turns
from xbus.rpc.frames import CHANNEL_ANSWER_FRAMES
from xbus.rpc.guard import ServerLimits
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.ports import CallerConnection, PeerIsFull, PeerIsGone, PlainPort, Port, PortOwner, RouterPort
from xbus.rpc.zmtp import TCP

log = logging.getLogger(__name__)

MESSAGES_READ_AHEAD = 100
"""Messages that libzmq may keep of one peer before TCP slows the peer down."""

LINGER_MS = 1000
"""Milliseconds for which libzmq goes on sending replies after ``close``."""

OF_PEERS = LifeSigns(handshake_seconds=30.0)
"""Peers may take their time to say who they are, as by libzmq's default. Nothing else is asked of them."""


@dataclass(frozen=True, slots=True)
class EncryptedDoor:
    """An address for encrypted connections.

    Args:
        address: as that of ``Server.bind``.
        pair: the server's.
        domain: under which the authenticator asks ``allows``, too.
        allows: tells whether the peer with a public key may be there; asked for each message.
    """

    address: str
    pair: KeyPair
    domain: str
    allows: Callable[[str], bool]


class Server:
    """Serves the verbs of a dispatch table at an address.

    A plain handler runs at once and its answer is sent before the next call is read, so calls that a peer pipelines
    are carried out in the order in which it made them. A handler that returns a future or a coroutine is answered when
    that is done.

    Args:
        context: of the whole process.
        dispatch: the verbs.
        name: for the log.
        limits: of what it takes in and keeps.
        may_read: asked before each call; after a no nothing is read until ``resume``.
        clock: stamps the replies.
        life_signs: how soon it notices that a peer's machine has vanished.
        turn: of the loop, shared with others; answers go at its end.
    """

    def __init__(
        self,
        context: Context,
        dispatch: Dispatch,
        *,
        name: str,
        limits: ServerLimits,
        may_read: Callable[[], bool] = always,
        clock: Clock | None = None,
        life_signs: LifeSigns = OF_PEERS,
        turn: LoopTurn | None = None,
    ) -> None:
        self.name = name
        clock = clock or SystemClock()
        self._unreadable = LogThrottle(clock)
        self._undelivered = LogThrottle(clock)
        self._may_read_on = may_read
        self._max_unanswered_bytes = limits.max_unanswered_bytes
        self._held_back = False
        self._caller: CallerConnection | None = None
        self._is_closed = False
        self._turns = Turns(time.monotonic, limits.share_bytes)
        self._queue = CallQueue(self._turns, self._carry_out, self._may_carry_out, self._read_on)
        self._answering = Answering(
            dispatch,
            name=name,
            send=self._send,
            max_call_bytes=limits.max_call_bytes,
        )
        self._peers = PeerClients(clock, PeerWire(self._transmit, self._read_all))
        reading = (self._serve, self._may_read, self._turns.has_room_for, self._turns.line)
        self._owner = PortOwner(name, clock, limits.traffic, *reading, self._peers.gone, self._note_violation)
        self._context = context
        self._limits = limits
        self._life_signs = life_signs
        self._plain = PlainPort(self._owner, limits.frame_bytes, life_signs, limits.replies_unread, turn or LoopTurn())
        self._router: RouterPort | None = None

    @property
    def unreadable(self) -> int:
        """The number of messages that were neither requests nor answers."""
        return self._unreadable.total

    @property
    def unanswered(self) -> int:
        """The number of calls that wait for their handler's future."""
        return self._answering.unanswered

    @property
    def unanswered_bytes(self) -> int:
        """The bytes of the calls that wait for their handler's future."""
        return self._answering.unanswered_bytes

    @property
    def refused(self) -> Mapping[str, int]:
        """By the code of the error, how many calls were refused or failed."""
        return self._answering.refused

    @property
    def caller(self) -> bytes:
        """The connection by which the call came that is carried out now; to be asked by plain handlers only."""
        return self._answering.caller

    @property
    def caller_address(self) -> str:
        """The address of the machine from which that call came; over ipc the user and the process."""
        return "" if self._caller is None else self._caller.address

    @property
    def caller_key(self) -> str:
        """The public key of the peer from which that call came; empty without encryption."""
        return "" if self._caller is None else self._caller.key

    def let_in(self, connection: bytes) -> None:
        """Take note that a connection has proven who it is, so that it may begin large calls."""
        self._port_of(connection).let_in(connection)

    def client_of(self, connection: bytes, channel: bytes, name: str, on_lost: Callable[[], None]) -> PeerClient:
        """Call a peer over the connection that it made; see ``PeerClients.open``."""
        return self._peers.open(connection, channel, name, on_lost)

    def bind(self, address: str) -> str:
        """Open the port; calls are read from ``start`` on.

        Args:
            address: ``tcp://host:port`` or ``ipc://path``; port 0 or ``*`` takes a free one.

        Returns:
            The address with the port that was taken.

        Raises:
            ConfigurationError: ``address_in_use`` or ``bad_address``.
        """
        if address.startswith(TCP):
            return self._plain.bind(address)
        return self._of_libzmq().bind(address, is_encrypted=False)

    def bind_encrypted(self, door: EncryptedDoor) -> str:
        """Open a port for encrypted connections, too; after ``bind``, whose port stays as it is.

        Returns:
            The address with the port that was taken.

        Raises:
            ConfigurationError: as ``bind``.
        """
        port = self._of_libzmq()
        port.encrypt(door.pair, door.domain, door.allows)
        return port.bind(door.address, is_encrypted=True)

    def start(self) -> None:
        """Begin to serve."""
        for port in self._ports:
            port.start()

    def cut_off_keys(self) -> None:
        """End the connections of keys that are not allowed any more."""
        if self._router is not None:
            self._router.cut_off_keys()

    def pause(self) -> None:
        """Read no further calls; peers wait."""
        for port in self._ports:
            port.pause()

    def resume(self) -> None:
        """Read again, after a ``pause`` or when ``may_read`` may have turned true."""
        self._read_on()
        self._queue.go_on()

    async def drain(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for all calls that were read to be answered; whether they are."""
        self._queue.release()
        try:
            async with asyncio.timeout(timeout):
                await self._answering.all_answered()
                await self._plain.all_read()
        except TimeoutError:
            return False
        return True

    def give_up(self, seconds: float, error: Exception) -> None:
        """Answer the calls that have waited for so long with what their verbs make of ``error``."""
        self._answering.give_up(seconds, error)

    def close(self) -> None:
        """Cancel unanswered calls, call nobody any more, and close the port."""
        if self._is_closed:
            return
        self._is_closed = True
        for port in self._ports:
            port.pause()
        self._queue.close()
        self._answering.cancel()
        self._peers.close()
        for port in self._ports:
            port.close()

    @property
    def _ports(self) -> Sequence[Port]:
        return (self._plain,) if self._router is None else (self._plain, self._router)

    def _port_of(self, peer: bytes) -> Port:
        return self._plain if self._router is None or self._plain.knows(peer) else self._router

    def _of_libzmq(self) -> RouterPort:
        """Give the port of libzmq, which starts threads: only who needs it has one."""
        if self._router is None:
            options = {
                zmq.MAXMSGSIZE: self._limits.max_message_bytes,
                zmq.RCVHWM: MESSAGES_READ_AHEAD,
                zmq.SNDHWM: self._limits.replies_unread,
                zmq.LINGER: LINGER_MS,
            }
            self._router = RouterPort(self._owner, self._context, options, self._life_signs)
        return self._router

    def _read_on(self) -> None:
        for port in self._ports:
            port.resume()

    def _read_all(self) -> None:
        for port in self._ports:
            port.read_all()

    def _may_read(self) -> bool:
        return not self._held_back and not self._turns.is_full and self._may_read_on()

    def _may_carry_out(self) -> bool:
        return not self._held_back and self._may_read_on()

    def _serve(self, connection: CallerConnection, frames: list[bytes]) -> None:
        if not connection.is_known:
            connection.is_known = self._answering.knows_caller(frames)
        if len(frames) != CHANNEL_ANSWER_FRAMES:
            call = Call(connection.peer, frames, sum(map(len, frames)), connection)
            if self._turns.add(call):
                self._carry_out(call)
            else:
                self._queue.wait()
            return
        try:
            self._peers.answered(frames)
        except ProtocolError as error:
            self._note_unreadable(connection, error)

    def _carry_out(self, call: Call) -> None:
        connection = self._caller = call.connection
        assert connection is not None, "a server has calls by connections alone"
        try:
            is_under_way = self._answering.take(call)
        except ProtocolError as error:
            self._note_unreadable(connection, error)
            return
        if is_under_way:
            self._turns.began(call)
            self._held_back = self._held_back or self._answering.unanswered_bytes > self._max_unanswered_bytes

    def _send(self, call: Call, frames: list[bytes]) -> bool:
        if self._is_closed:
            return True
        if call.counted_in is not None:
            self._turns.ended(call)
            if self._turns.line:
                self._queue.go_on()
        if self._held_back and self._answering.unanswered_bytes <= self._max_unanswered_bytes / 2:
            self._held_back = False
            self.resume()
        peer = self._plain.peers.get(call.peer)
        if peer is not None and not peer.stream.waits_for_room:
            peer.stream.send(frames[1:])
            return True
        port = self._port_of(call.peer)
        try:
            port.send(frames)
        except PeerIsGone:
            self._note_undelivered(call.peer, "the peer is gone")
            return False
        except PeerIsFull:
            self._note_undelivered(call.peer, "the peer leaves its replies unread")
            return False
        finally:
            port.check()
        return True

    def _transmit(self, frames: Sequence[Frame]) -> bool:
        peer = self._plain.peers.get(bytes(frames[0]))
        if peer is not None and not peer.stream.waits_for_room:
            peer.stream.send(frames[1:])
            return True
        port = self._port_of(bytes(frames[0]))
        try:
            port.send(frames)
        except PeerIsFull:
            return False
        except PeerIsGone:
            raise ConnectionLost(f"{self.name}: a peer is gone") from None
        finally:
            port.check()
        return True

    def _note_unreadable(self, connection: CallerConnection, error: ProtocolError) -> None:
        if count := self._unreadable.note(connection.address):
            extra = {
                "action": "unreadable_request",
                "peer": connection.peer.hex(),
                "address": connection.address,
                "count": count,
                "cause": error.cause,
            }
            log.warning("%s: a peer sends what is no request", self.name, extra=extra)

    def _note_violation(self, address: str, error: ProtocolError) -> None:
        if count := self._unreadable.note(address):
            extra = {"action": "protocol_violation", "peer": address, "count": count, "cause": error.cause}
            log.warning("%s: a peer does not keep to the protocol", self.name, extra=extra)

    def _note_undelivered(self, peer: bytes, cause: str) -> None:
        # Nobody may know the address of one that is gone: such are summed up, wherever they were.
        if count := self._undelivered.note(self._port_of(peer).address_of(peer)):
            extra = {"action": "undelivered_reply", "peer": peer.hex(), "count": count, "cause": cause}
            log.info("%s: a reply could not be delivered", self.name, extra=extra)
