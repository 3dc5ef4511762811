"""The answering side: a server opens the ports of an address, and carries out calls in the order of their arrival.

It is shared among its connections: while several call, each has a bounded part of the calls under way.
A group commit answers all calls together that came before it. A peer that keeps a thousand calls under way makes each
group as long as a thousand calls, so that another one with a single call waits a hundred times as long for its answer.
So the calls of a connection that go beyond its share wait here until earlier ones are answered.

The share is small only for the sake of those that keep few calls under way. A connection that calls alone is bound by
the number of its calls, not by their bytes, and one beside others that all have calls waiting has a share so large that
it loses nothing.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import zmq

from xbus.clock import Clock, SystemClock
from xbus.errors import ConnectionLost, ProtocolError
from xbus.log_throttle import LogThrottle
from xbus.loop_turn import LoopTurn
from xbus.rpc.answering import Answering, Call, Share
from xbus.rpc.codec import Frame
from xbus.rpc.context import Context
from xbus.rpc.curve import KeyPair
from xbus.rpc.dispatch import Dispatch
from xbus.rpc.frames import CHANNEL_ANSWER_FRAMES
from xbus.rpc.guard import ServerLimits
from xbus.rpc.life_signs import LifeSigns
from xbus.rpc.owed_calls import PeerClient, PeerClients
from xbus.rpc.ports import CallerConnection, PeerIsFull, PeerIsGone, PlainPort, Port, PortOwner, RouterPort
from xbus.rpc.rests import LARGE_BYTES, Rests
from xbus.rpc.zmtp import TCP

log = logging.getLogger(__name__)

MESSAGES_READ_AHEAD = 100
"""Messages that libzmq may keep of one peer before TCP slows the peer down."""

LINGER_MS = 1000
"""Milliseconds for which libzmq goes on sending replies after ``close``."""

PERIOD_SECONDS = 0.05
"""A connection counts as calling from its call to the end of the period behind. Longer protects peers that call seldom,
and slows others down for them. A call that is under way for longer waits for something else, and counts no more."""

CALL_BYTES = 32 * 1024
"""The bytes that take as much time as a call without any: so large and small calls are measured by one scale."""

SHARE_BYTES = 2 * CALL_BYTES + CALL_BYTES // 2
"""The calls of a connection under way while others call. More let a peer delay others for longer, fewer make it slower
itself, as fewer calls share a commit."""

_BUSY = 64
"""So many times its share has a connection while all have calls waiting. More delay a newcomer for longer, fewer make
all slower, as fewer calls share a commit."""

_MOST_CALLS = 160
"""The calls of a connection under way, also of one that calls alone: as many small ones as ``_BUSY`` shares are. With
more of them a newcomer waits so long for its first answer that it no longer counts as calling."""

WAITING_BYTES = 8 * 1024 * 1024
"""The calls of all connections that wait for their turn; with more nothing is read. More takes memory."""

WAITING_BYTES_OF_ONE = WAITING_BYTES // 8
"""The calls of one connection that wait; with more it alone is read no further. More lets fewer peers fill all room."""

_GATHERED_BYTES = 1024 * 1024
"""So many bytes of shared calls wait for the end of a turn. More let one turn take more memory."""

_KEPT_BYTES = 512
"""The memory of a call that waits, beside its bytes."""

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
        may_read: asked before each call; after a no nothing is read until ``resume``. None reads always.
        clock: measures how often a fault of a peer is logged.
        life_signs: how soon it notices that a peer's machine has vanished.
        turn: of the loop, shared with others; answers go at its end.
        rests: says how long callers rest behind large calls; the shared verb asks it, too. None for not at all.
    """

    def __init__(
        self,
        context: Context,
        dispatch: Dispatch,
        *,
        name: str,
        limits: ServerLimits,
        may_read: Callable[[], bool] | None = None,
        clock: Clock | None = None,
        life_signs: LifeSigns = OF_PEERS,
        turn: LoopTurn | None = None,
        rests: Rests | None = None,
    ) -> None:
        self.name = name
        clock, turn = clock or SystemClock(), turn or LoopTurn()
        self._unreadable = LogThrottle(clock)
        self._undelivered = LogThrottle(clock)
        self._may_read_on = may_read
        self._max_unanswered_bytes = limits.max_unanswered_bytes
        self._held_back = False
        self._is_closed = False
        self._rests = rests
        self._turns = Turns(time.monotonic, limits.share_bytes, rests=rests)
        self._answering = Answering(
            dispatch,
            name=name,
            send=self._send,
            unreadable=self._unreadable_call,
            max_call_bytes=limits.max_call_bytes,
        )
        self._turn = turn
        self._gathered: list[Call] = []
        """Calls of the shared verb that wait for the end of the turn, or for any other call."""
        self._gathered_bytes = 0
        self._queue = CallQueue(self._turns, self._answering.take_all, partial(self._may_read, True), self._read_on)
        self._peers = PeerClients(self._transmit, self._read_all)
        reading = (self._serve, self._may_read, self._turns.has_room_for, self._turns.line)
        self._owner = PortOwner(name, clock, limits.traffic, *reading, self._peers.gone, self._note_violation)
        self._context = context
        self._limits = limits
        self._life_signs = life_signs
        self._plain = PlainPort(self._owner, limits.frame_bytes, life_signs, limits.replies_unread, turn)
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
        connection = self._answering.connection
        return "" if connection is None else connection.address

    @property
    def caller_key(self) -> str:
        """The public key of the peer from which that call came; empty without encryption."""
        connection = self._answering.connection
        return "" if connection is None else connection.key

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
        self._carry_out()
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

    def _may_read(self, has_waited: bool = False) -> bool:
        # Calls that have waited make it full.
        if self._turns.is_full and not has_waited:
            return False
        if self._answering.unanswered_bytes > self._max_unanswered_bytes:
            self._held_back = True
        return not self._held_back and (self._may_read_on is None or self._may_read_on())

    def _serve(self, connection: CallerConnection, frames: list[bytes], size: int) -> None:
        if not connection.is_known:
            connection.is_known = self._answering.knows_caller(frames)
        if len(frames) == CHANNEL_ANSWER_FRAMES:
            try:
                self._peers.answered(frames)
            except ProtocolError as error:
                self._note_unreadable(connection, error)
            return
        call = Call(connection.peer, frames, size, connection)
        if frames[-3:-2] == self._answering.shared:
            if not self._gathered:
                self._turn.at_end(self._carry_out)
            self._gathered.append(call)
            self._gathered_bytes += size + _KEPT_BYTES
            if self._gathered_bytes > _GATHERED_BYTES:
                self._carry_out()
            return
        if self._gathered:
            self._carry_out()
        if (rests := self._rests) is not None:
            if size > LARGE_BYTES:
                rests.note_long(call.peer)
            elif rests.long or rests.last != call.peer:
                rests.note_short(call.peer, (call.peer,))
        if self._turns.add([call]):
            self._answering.take(call)
        else:
            self._queue.wait()

    def _carry_out(self) -> None:
        """Carry out the calls of the shared verb that were gathered, as far as it is their turn."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        calls = self._turns.add(gathered)
        if len(calls) < len(gathered):
            self._queue.wait()
        if calls:
            self._answering.take_together(calls)

    def _send(self, call: Call, frames: list[bytes]) -> bool:
        if self._is_closed:
            return True
        if call.share is not None:
            self._turns.ended(call)
            if self._turns.line:
                if call.size > LARGE_BYTES:
                    self._rest(call, call.share)
                self._queue.go_on()
        if self._held_back and self._answering.unanswered_bytes <= self._max_unanswered_bytes / 2:
            self._held_back = False
            self.resume()
        if not frames:
            return True
        peer = self._plain.peers.get(call.peer)
        route = call.frames
        if peer is not None and not peer.stream.waits_for_room:
            return peer.stream.send(frames if len(route) == 1 else [*route[1:], *frames])
        port = self._port_of(call.peer)
        try:
            port.send([*route, *frames])
        except PeerIsGone:
            self._note_undelivered(call.peer, "the peer is gone")
            return False
        except PeerIsFull:
            self._note_undelivered(call.peer, "the peer leaves its replies unread")
            return False
        finally:
            port.check()
        return True

    def _rest(self, call: Call, share: Share) -> None:
        """Have a connection rest behind a large call that others of its own follow.

        The shared verb does so for its own calls.
        """
        if self._rests is None or not share.waiting or call.since == math.inf or self._answering.is_shared(call):
            return
        if rest := self._rests.seconds(call.peer, call.since, call.size):
            share.rests_until = time.monotonic() + rest
            self._queue.go_on_later(rest)

    def _transmit(self, frames: Sequence[Frame]) -> bool:
        peer = self._plain.peers.get(bytes(frames[0]))
        if peer is not None and not peer.stream.waits_for_room:
            return peer.stream.send(frames[1:])
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

    def _unreadable_call(self, call: Call, error: ProtocolError) -> None:
        assert call.connection is not None, "a server has calls by connections alone"
        self._turns.ended(call)
        self._note_unreadable(call.connection, error)

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


class Turns:
    """Says which calls may be carried out now.

    Args:
        now: the time in seconds.
        share_bytes: the calls of a connection under way while others call; one call may always be.
        waiting_bytes: with more than this in calls that wait, it is full.
        rests: says how long a connection rests behind a large call that others of its own follow. None for not at all.
    """

    def __init__(
        self,
        now: Callable[[], float],
        share_bytes: float = SHARE_BYTES,
        waiting_bytes: int = WAITING_BYTES,
        rests: Rests | None = None,
    ) -> None:
        self._now = now
        self._rests = rests
        self._share_bytes = share_bytes
        self._is_bounded = share_bytes < math.inf
        self._most_waiting_bytes = waiting_bytes
        self._period = 0
        self._period_ends = 0.0
        self._shares: dict[bytes, Share] = {}
        """The connections that have called in this period, or whose calls wait."""
        self._of_before: dict[bytes, Share] = {}
        """Connections of the period before that have not called since."""
        self.line: deque[Share] = deque()
        """The connections whose calls wait for their turn; empty while none waits."""
        self._waiting_bytes = 0
        self._has_new_room = False
        self.is_full = False
        """Whether so much waits that no further calls should be added."""

    def has_room_for(self, peer: bytes) -> bool:
        """Check whether a connection may have further calls wait. After a no ``take_new_room`` says when it may."""
        share = self._shares.get(peer)
        if share is None or share.waiting_bytes <= WAITING_BYTES_OF_ONE:
            return True
        share.is_stopped = True
        return False

    def take_new_room(self) -> bool:
        """Check whether some connection has room again since the last time."""
        has_new_room, self._has_new_room = self._has_new_room, False
        return has_new_room

    def add(self, calls: list[Call]) -> list[Call]:
        """Note calls that are carried out at once, or wait until ``next`` hands them back.

        Returns:
            The calls that may be carried out at once, in their order. Each is under way until ``ended``.
        """
        if not self._is_bounded:
            return calls
        if (now := self._now()) >= self._period_ends:
            self._begin_period(now)
        at_once: list[Call] = []
        for call in calls:
            share = self._shares.get(call.peer)
            if share is None:
                share = self._take_up(call.peer)
            if not share.waiting:
                # Who has nothing under way may always call, whatever the others do.
                if (share.calls == share.earlier_calls == 0 or _has_room(share, call, self._present_share)) and not (
                    share.rests_until and self._is_resting(share)
                ):
                    # As ``_begin``, whose call each message would pay for.
                    call.share, call.period = share, self._period
                    share.weight += call.size + CALL_BYTES
                    share.calls += 1
                    at_once.append(call)
                    continue
                self.line.append(share)
            share.waiting.append(call)
            self._keep(share, call.size + _KEPT_BYTES)
        return at_once

    def ended(self, call: Call) -> None:
        """Note that a call is answered that was under way. One that was answered at once took nobody's turn."""
        if (own := call.share) is not None:
            if call.period == own.period:
                own.weight -= call.size + CALL_BYTES
                own.calls -= 1
            elif call.period == own.period - 1:
                own.earlier_weight -= call.size + CALL_BYTES
                own.earlier_calls -= 1

    def _is_resting(self, share: Share) -> bool:
        return self._now() < share.rests_until and self._rests is not None and self._rests.are_due

    def next(self) -> Call | None:
        """Give a call that may be carried out now, and is under way until ``ended``; connections take turns."""
        if (now := self._now()) >= self._period_ends:
            self._begin_period(now)
        present_share = self._present_share
        for _ in range(len(self.line)):
            share = self.line.popleft()
            call = share.waiting[0]
            has_room = _has_room(share, call, present_share) and not (share.rests_until and self._is_resting(share))
            if has_room:
                self._begin(share, call)
                share.waiting.popleft()
                self._keep(share, -call.size - _KEPT_BYTES)
            if share.waiting:
                self.line.append(share)
            if has_room:
                return call
        return None

    def _begin(self, share: Share, call: Call) -> None:
        """Count a call as under way that has waited."""
        weight = call.size + CALL_BYTES
        call.share, call.period = share, self._period
        share.weight += weight
        share.calls += 1

    def rest(self) -> list[Call]:
        """Give all calls that wait, each connection's in their order; they wait no more."""
        calls = [call for share in self.line for call in share.waiting]
        for share in self.line:
            share.waiting.clear()
            share.waiting_bytes = 0
        self.line.clear()
        self._waiting_bytes = 0
        self.is_full = False
        return calls

    def _keep(self, share: Share, more: int) -> None:
        self._waiting_bytes += more
        self.is_full = self._waiting_bytes > self._most_waiting_bytes
        share.waiting_bytes += more
        if share.is_stopped and share.waiting_bytes <= WAITING_BYTES_OF_ONE / 2:
            share.is_stopped = False
            self._has_new_room = True

    @property
    def _present_share(self) -> float:
        calling = len(self._shares) + len(self._of_before)
        if calling == 1:
            return math.inf
        return self._share_bytes * (_BUSY if len(self.line) == calling else 1)

    def _take_up(self, peer: bytes) -> Share:
        """Give the share of a connection that calls for the first time in this period."""
        share = self._of_before.pop(peer, None)
        if share is None:
            share = Share(peer, self._period)
        else:
            share.begin_period(self._period)
        self._shares[peer] = share
        return share

    def _begin_period(self, now: float) -> None:
        period = math.floor(now / PERIOD_SECONDS)
        is_next = period == self._period + 1
        self._period, self._period_ends = period, (period + 1) * PERIOD_SECONDS
        called, self._shares = self._shares, {}
        for share in self.line:
            self._shares[share.peer] = called.pop(share.peer)
            share.begin_period(period)
        self._of_before = called if is_next else {}


def _has_room(share: Share, call: Call, most: float) -> bool:
    under_way = share.weight + share.earlier_weight
    if under_way <= 0:
        return True
    return under_way + call.size + CALL_BYTES <= most and share.calls + share.earlier_calls < _MOST_CALLS


class CallQueue:
    """Carries calls out that had to wait until earlier ones of their connection were answered.

    Args:
        turns: says which calls may be carried out.
        carry_out: does that, in their order.
        may_go_on: asked before each call that has waited.
        on_room: called when it was full, for all or for a connection, and takes calls again.
    """

    def __init__(
        self,
        turns: Turns,
        carry_out: Callable[[list[Call]], None],
        may_go_on: Callable[[], bool],
        on_room: Callable[[], None],
    ) -> None:
        self._turns = turns
        self._carry_out = carry_out
        self._may_go_on = may_go_on
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._next_look: asyncio.TimerHandle | None = None
        self._is_going_on = False

    def wait(self) -> None:
        """Carry out later what ``Turns.add`` has kept."""
        if self._next_look is None:
            self._look_later()

    def go_on(self) -> None:
        """Carry out soon what may be carried out now; first those get their answers who have waited for them."""
        if self._turns.line and not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)

    def go_on_later(self, seconds: float) -> None:
        """Carry out what may be carried out when a connection has rested for so long."""
        self._loop.call_later(seconds, self.go_on)

    def release(self) -> None:
        """Carry out all that waits."""
        self._carry_out(self._turns.rest())

    def close(self) -> None:
        """Forget all that waits."""
        self._turns.rest()
        if self._next_look is not None:
            self._next_look.cancel()

    def _go_on(self) -> None:
        self._is_going_on = False
        was_full = self._turns.is_full
        calls: list[Call] = []
        while self._may_go_on() and (call := self._turns.next()) is not None:
            calls.append(call)
        self._carry_out(calls)
        has_new_room = self._turns.take_new_room()
        if has_new_room or (was_full and not self._turns.is_full):
            self._on_room()

    def _look_later(self) -> None:
        self._next_look = self._loop.call_later(PERIOD_SECONDS, self._look)

    def _look(self) -> None:
        """See whose calls have waited long enough: nobody else calls any more, or the earlier ones take very long."""
        self._next_look = None
        self._go_on()
        if self._turns.line:
            self._look_later()
