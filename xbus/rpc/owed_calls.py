"""The calling side of a connection, and the peers of a server, called over their own connections.

The caller numbers calls, matches answers to them, and lets them time out.
"""

import asyncio
import itertools
import logging
import math
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from xbus.errors import CallError, ConnectionLost, ProtocolError, Refused, TimedOut
from xbus.loop_turn import tell
from xbus.rpc.codec import KEPT_BYTES, Frame, KeptPacker, Value
from xbus.rpc.deferred import Promise, settled
from xbus.rpc.frames import Reply, decode_reply, encode_request, sender_prefix

log = logging.getLogger(__name__)

CHANNEL_BYTES = range(8, 65)
"""How long a channel may be. Fewer bytes might be guessed, or be taken twice."""

ROOM_SECONDS = 0.01
"""Seconds between looks whether a full queue has room again."""

PROBE_DELAY = 0.05
"""Seconds from the end of some connection to the probes: libzmq takes messages for a lost peer a moment longer."""

PROBE_SECONDS = 1.0
"""Seconds that a peer has to answer a probe before it gets a second one."""

PROBE_INTERVAL = 0.5
"""The least seconds between two rounds of probes. Fewer notice sooner where many connections end, and cost messages."""

MOST_REMEMBERED = 1000
"""So many closed channels are remembered, as late answers come from honest peers."""

_REQUEST_IDS = 2**32

AnswerTaker: TypeAlias = Callable[[Value, CallError | None], object]
"""Takes the answer to a call, or the error that came in its place, once. The loop is told what it raises."""


class OverdueCall(NamedTuple):
    """A call that timed out, and that the other side still has in hand.

    Args:
        method: the verb.
        since: when its time was over, on the loop's clock.
    """

    method: str
    since: float


class Callee(Protocol):
    """Somebody whose verbs can be called.

    A ``Client`` reaches it at its address. A ``PeerClient`` reaches it over the connection that it made itself. The
    node that emits is in the back's own process.
    """

    @property
    def connection(self) -> bytes | None:
        """The connection that it made to us and is called over; None if we made one to its address."""

    @property
    def heard_at(self) -> float | None:
        """When it last answered, on the loop's clock; None before the first time."""

    @property
    def owed(self) -> int:
        """The number of calls that it has not answered yet, with those that timed out here."""

    @property
    def overdue(self) -> Sequence[OverdueCall]:
        """The calls that timed out here and are not answered yet, the first that timed out first."""

    def call(
        self,
        method: str,
        *args: object,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> "asyncio.Future[Value]":
        """Call a verb as ``ask`` does; a future gets the answer."""
        future = asyncio.get_running_loop().create_future()
        self.ask(method, args, partial(_give, future), timeout, renewed)
        return future

    def ask(
        self,
        method: str,
        args: tuple[object, ...],
        taker: AnswerTaker,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> None:
        """Call a verb; the request is sent before this returns, if it can be sent now.

        Args:
            taker: gets the answer, in the turn of the loop in which it comes. An error is ``Refused`` or ``Failed`` as
                the other side says, ``TimedOut``, or ``ConnectionLost``.
            timeout: seconds after which the call fails with ``TimedOut``; it stays owed.
            renewed: asked when that time is over: when, on the loop's clock, it began anew, as the other side showed
                that it gets on with the call; None for never.

        Raises:
            ProtocolError: an argument can't be encoded.
        """

    async def settled(self) -> None:
        """Wait until nothing is owed: all is answered, or the connection that it was owed over is gone."""

    def close(self) -> None:
        """Call it no more; unanswered calls fail with ``ConnectionLost``."""


class OwedCalls(Callee):
    """The calls of one connection that are owed an answer.

    Calls are sent in the order in which they are made. One that can't be sent now waits, and so do those behind it.

    Args:
        name: who is called, for the errors.
        send: sends the frames of a call; false if they must wait for ``send_unsent``.
        ids: where its numbers come from; its own count by default.
        packer: packs the arguments; its own by default.
    """

    connection: bytes | None = None
    heard_at: float | None = None

    def __init__(
        self,
        name: str,
        send: Callable[[Sequence[Frame]], bool],
        ids: Iterator[int] | None = None,
        packer: KeptPacker | None = None,
    ) -> None:
        self.name = name
        self.send = send
        self._packer = packer or KeptPacker()
        self._loop = asyncio.get_running_loop()
        self._sender = sender_prefix(os.getpid(), secrets.randbits(16))
        self._ids = itertools.count() if ids is None else ids
        self._calls: dict[int, _AwaitedCall] = {}
        self._unsent: dict[int, Sequence[Frame]] = {}
        self._overdue: dict[int, OverdueCall] = {}
        self._next_look: asyncio.TimerHandle | None = None
        self._next_look_at = math.inf
        self._settled: Promise[None] | None = None
        """Settled when nothing is owed any more, while somebody waits for that."""
        self.refusal: CallError | None = None
        """The error of each call that is made now, without a try; None while calls are sent, or wait."""
        self.stands_by: CallError | None = None
        """The answer of a server that does not lead, while calls wait for one that does."""

    def ask(
        self,
        method: str,
        args: tuple[object, ...],
        taker: AnswerTaker,
        timeout: float | None = None,
        renewed: Callable[[], float | None] | None = None,
    ) -> None:
        """Call a verb; see ``Callee.ask``."""
        if self.refusal is not None:
            taker(None, self.refusal)
            return
        request_id = next(self._ids) % _REQUEST_IDS
        frames = encode_request(self._sender, request_id, time.time(), method, args, self._packer.pack)
        if len(frames[2]) > KEPT_BYTES:
            self._packer.packed(frames[2])
        call = _AwaitedCall(method, taker, timeout, renewed)
        if timeout is not None:
            call.due_at = self._loop.time() + timeout
            if call.due_at < self._next_look_at:
                self._look_at(call.due_at)
        self._calls[request_id] = call
        if self._unsent or not self.send(frames):
            self._unsent[request_id] = frames

    def ask_first(self, send: Callable[[Sequence[Frame]], bool], method: str, taker: AnswerTaker) -> int:
        """Call a verb over a connection by which no other call is sent yet, past those that wait.

        Args:
            send: sends over it.
            taker: as of ``ask``.

        Returns:
            The number of the call, for ``forget``.
        """
        request_id = next(self._ids) % _REQUEST_IDS
        self._calls[request_id] = _AwaitedCall(method, taker)
        send(encode_request(self._sender, request_id, time.time(), method, (), self._packer.pack))
        return request_id

    @property
    def owed(self) -> int:
        """The number of calls without an answer, with those that timed out here."""
        return len(self._calls)

    @property
    def overdue(self) -> Sequence[OverdueCall]:
        """The calls that timed out here and are not answered yet, the first that timed out first."""
        return list(self._overdue.values())

    async def settled(self) -> None:
        """Wait until nothing is owed: all is answered, or the connection that it was owed over is gone."""
        if self._calls:
            self._settled = self._settled or Promise()
            await settled(self._settled)

    def send_unsent(self) -> None:
        """Send the calls that wait, in their order, as far as they can be sent now."""
        for request_id, frames in list(self._unsent.items()):
            if not self.send(frames):
                return
            del self._unsent[request_id]

    def answered(self, reply: Reply) -> bool:
        """Give an answer to its caller; false if it belongs to no call of this connection."""
        self.heard_at = self._loop.time()
        request_id, answer, error = reply
        # As of ``forget``, whose call each answer would pay for.
        if self._overdue:
            self._overdue.pop(request_id, None)
        call = self._calls.pop(request_id, None)
        if self._settled is not None:
            self._look_whether_settled()
        if call is not None:
            try:
                call.taker(answer, error)
            except Exception as raised:
                # To whoever reads the connection it would look like a breach by the other side.
                tell(raised)
        return call is not None

    def _look_whether_settled(self) -> None:
        if self._settled is not None and not self._calls:
            self._settled.set_result(None)
            self._settled = None

    def fail_all(self, error: CallError) -> None:
        """Fail every call: its connection is gone."""
        calls, self._calls, self._unsent = self._calls, {}, {}
        self._overdue.clear()
        self._look_whether_settled()
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look, self._next_look_at = None, math.inf
        for call in calls.values():
            _fail(call.taker, error)

    def close(self) -> None:
        """Refuse further calls; unanswered ones fail with ``ConnectionLost``."""
        self.refusal = ConnectionLost(f"{self.name}: the connection was closed here")
        self.fail_all(self.refusal)

    def _look_at(self, moment: float) -> None:
        """Look for calls whose time is over; one timer serves all of them, as most are answered long before."""
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look, self._next_look_at = self._loop.call_at(moment, self._look), moment

    def _look(self) -> None:
        self._next_look, self._next_look_at = None, math.inf
        now = self._loop.time()
        for request_id, call in [(request_id, call) for request_id, call in self._calls.items() if call.due_at <= now]:
            self._time_out(request_id, call, now)
        next_due = min((call.due_at for call in self._calls.values()), default=math.inf)
        if next_due < math.inf:
            self._look_at(next_due)

    def _time_out(self, request_id: int, call: "_AwaitedCall", now: float) -> None:
        assert call.timeout is not None, "only a call with a time-out is due"
        began_anew = None if call.renewed is None else call.renewed()
        call.due_at = math.inf if began_anew is None else began_anew + call.timeout
        if now < call.due_at < math.inf:
            return
        call.due_at = math.inf
        if self._unsent.pop(request_id, None):
            self.forget(request_id)
            cause = f"{self.name}: no connection for {call.method} within {call.timeout:.3g} s"
            timed_out = TimedOut(cause, "see whether the other side runs, and listens there")
            _fail(call.taker, self.stands_by or timed_out)
        else:
            self._overdue[request_id] = OverdueCall(call.method, now)
            taker, call.taker = call.taker, _take_late
            _fail(taker, TimedOut(f"{self.name}: no answer to {call.method} within {call.timeout:.3g} s"))

    def forget(self, request_id: int) -> "_AwaitedCall | None":
        """Expect no answer to a call any more."""
        self._overdue.pop(request_id, None)
        call = self._calls.pop(request_id, None)
        if self._settled is not None:
            self._look_whether_settled()
        return call


@dataclass(slots=True)
class _AwaitedCall:
    """A call that is owed an answer.

    Args:
        taker: as of ``Callee.ask``; whoever waited no longer is not told again.
        timeout: as of ``Callee.ask``.
        renewed: as of ``Callee.ask``.
        due_at: when its time is over, on the loop's clock.
    """

    method: str
    taker: AnswerTaker
    timeout: float | None = None
    renewed: Callable[[], float | None] | None = None
    due_at: float = math.inf


def pass_on(call: "asyncio.Future[Value]", taker: AnswerTaker) -> None:
    """Give the answer to a call to a taker, when it comes.

    Args:
        call: a future that fails with a ``CallError`` alone.
    """

    def answered(call: "asyncio.Future[Value]") -> None:
        error = ConnectionLost("the call was broken off") if call.cancelled() else call.exception()
        assert error is None or isinstance(error, CallError), "a call fails with nothing else"
        taker(None if error is not None else call.result(), error)

    call.add_done_callback(answered)


def _give(future: "asyncio.Future[Value]", answer: Value, error: CallError | None) -> None:
    """Give an answer to whoever still waits for it."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)


def _fail(taker: AnswerTaker, error: CallError) -> None:
    """Give an error to the taker of one call of several; what it raises must not reach the others."""
    try:
        taker(None, error)
    except Exception as raised:
        tell(raised)


def _take_late(answer: Value, error: CallError | None) -> None:
    """Take an answer for which nobody waits any more."""


class PeerClient(OwedCalls):
    """Calls the verbs of a peer over the connection that the peer made.

    It ends with that connection: when the peer is gone, every unanswered call fails.

    Args:
        peers: knows it while it is open, and leads to the peer.
        connection: the peer's routing id.
        channel: what opens each message, both ways.
        name: whom it is, for the errors.
        on_lost: called once, when the peer is gone and its calls have failed.
    """

    connection: bytes

    def __init__(
        self, peers: "PeerClients", connection: bytes, channel: bytes, name: str, on_lost: Callable[[], None]
    ) -> None:
        super().__init__(name, self._sent, peers.ids, peers.packer)
        self.connection = connection
        self.channel = channel
        self._peers = peers
        self._on_lost = on_lost
        self._room: asyncio.TimerHandle | None = None
        self._is_gone = False

    def close(self) -> None:
        """Call the peer no more; unanswered calls fail with ``ConnectionLost``."""
        if self.refusal is not None:
            return
        if self._room is not None:
            self._room.cancel()
        self._peers.forget(self)
        if self._is_gone:
            self.refusal = ConnectionLost(f"{self.name}: the connection was lost", "see whether the other side runs")
            self.fail_all(self.refusal)
        else:
            super().close()

    def probe(self) -> None:
        """Find out whether the peer is still there: a message to one that is gone can't be sent."""
        if self.refusal is None:
            self.call("ping", "probe", timeout=PROBE_SECONDS).add_done_callback(self._probed)

    def _probed(self, probe: "asyncio.Future[Value]") -> None:
        # The first one may have gone into the queue of a peer that libzmq was just about to forget.
        if not probe.cancelled() and isinstance(probe.exception(), TimedOut) and self.refusal is None:
            self.call("ping", "probe", timeout=PROBE_SECONDS).add_done_callback(_seen)

    def _sent(self, frames: Sequence[Frame]) -> bool:
        try:
            sent = self._peers.transmit([self.connection, self.channel, *frames])
        except ConnectionLost:
            self.lose()
            return False
        if not sent:
            self._room = self._loop.call_later(ROOM_SECONDS, self.send_unsent)
        return sent

    def lose(self) -> None:
        """Take note that the peer is gone."""
        if not self._is_gone:
            self._is_gone = True
            # Later, as the caller may be in the midst of the call that shows it.
            self._loop.call_soon(self._lose)

    def _lose(self) -> None:
        # What was answered before the end counts as answered.
        self._peers.read_all()
        if self.refusal is not None:
            return
        log.info("%s: connection lost", self.name, extra={"action": "connection_lost", "unanswered": self.owed})
        self.close()
        self._on_lost()


def _seen(call: "asyncio.Future[Value]") -> None:
    """Take note of an answer that nobody needs."""
    if not call.cancelled():
        call.exception()


class PeerClients:
    """The peers of a server that it calls.

    An answer counts if it comes by the connection and the channel of the call, with the call's number. Numbers are not
    used again, so that a late answer never passes for another one.

    Args:
        transmit: sends a message to a peer; false if its queue is full. It raises ``ConnectionLost`` if the peer is
            gone.
        read_all: reads what has come until now.
    """

    def __init__(self, transmit: Callable[[Sequence[Frame]], bool], read_all: Callable[[], None]) -> None:
        self.transmit = transmit
        self.read_all = read_all
        self.ids: Iterator[int] = itertools.count()
        self.packer = KeptPacker()
        self._loop = asyncio.get_running_loop()
        self._open: dict[tuple[bytes, bytes], PeerClient] = {}
        self._closed: deque[tuple[bytes, bytes]] = deque(maxlen=MOST_REMEMBERED)
        self._next_probe: asyncio.TimerHandle | None = None
        self._probed_at = -PROBE_INTERVAL

    def open(self, connection: bytes, channel: bytes, name: str, on_lost: Callable[[], None]) -> PeerClient:
        """Begin to call a peer.

        Args:
            connection: its routing id.
            channel: made by the peer, anew for each registration.
            name: whom it is, for the errors.
            on_lost: called once, when the peer is gone.

        Raises:
            Refused: the channel is too short or too long, or was used before (``bad_channel``).
        """
        key = connection, channel
        if len(channel) not in CHANNEL_BYTES or key in self._open or key in self._closed:
            raise Refused(
                "the channel is no fresh one of 8 to 64 bytes",
                "make a channel of random bytes for each registration",
                code="bad_channel",
            )
        peer = self._open[key] = PeerClient(self, connection, channel, name, on_lost)
        return peer

    def forget(self, peer: PeerClient) -> None:
        """Take note that nothing more comes for a client."""
        key = peer.connection, peer.channel
        del self._open[key]
        self._closed.append(key)

    def answered(self, frames: list[bytes]) -> None:
        """Take an answer: routing id, channel, header, data.

        Raises:
            ProtocolError: it is none, or nobody called this peer by this channel.
        """
        if (peer := self._open.get(key := (frames[0], frames[1]))) is not None:
            peer.answered(decode_reply(frames[2:]))
        elif key not in self._closed:
            raise ProtocolError("a request has 4 frames behind the routing id, and an answer has an open channel")

    def gone(self, connection: bytes | None) -> None:
        """Take note that a connection has ended.

        Args:
            connection: whose; None where nobody knows: then each peer is asked soon whether it is still there.
        """
        if connection is None:
            self._probe_soon()
            return
        for peer in [peer for (of, _), peer in self._open.items() if of == connection]:
            peer.lose()

    def _probe_soon(self) -> None:
        if self._next_probe is None and self._open:
            at = max(self._loop.time() + PROBE_DELAY, self._probed_at + PROBE_INTERVAL)
            self._next_probe = self._loop.call_at(at, self._probe)

    def _probe(self) -> None:
        self._next_probe = None
        self._probed_at = self._loop.time()
        for peer in list(self._open.values()):
            peer.probe()

    def close(self) -> None:
        """Call nobody any more."""
        if self._next_probe is not None:
            self._next_probe.cancel()
        for peer in list(self._open.values()):
            peer.close()
