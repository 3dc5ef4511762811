"""Shares a server among its connections: while several call, each has a bounded part of the calls under way.

A group commit answers all calls together that came before it. A peer that keeps a thousand calls under way makes each
group as long as a thousand calls, so that another one with a single call waits a hundred times as long for its answer.
So the calls of a connection that go beyond its share wait here until earlier ones are answered.

The share is small only for the sake of those that keep few calls under way. A connection that calls alone is bound by
the number of its calls, not by their bytes, and one beside others that all have calls waiting has a share so large that
it loses nothing.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from xbus.rpc.exchange.answering import Call, Unanswered

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

_KEPT_BYTES = 512
"""The memory of a call that waits, beside its bytes."""


@dataclass(eq=False, slots=True)
class _Share:
    """The calls of a connection.

    Args:
        peer: its id.
        called_in: the period of its last call.
        recent: its unanswered calls that began in this period.
        earlier: those that began in the period before.
        debt: the weight by which a call went beyond the share; answers to others pay it, and the end of the period.
        waiting: calls, in their order.
        waiting_bytes: of those.
        is_stopped: whether nothing more is read of the connection until half of its room is free.
    """

    peer: bytes
    called_in: int = 0
    recent: Unanswered = field(default_factory=Unanswered)
    earlier: Unanswered = field(default_factory=Unanswered)
    debt: float = 0.0
    waiting: deque[Call] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_stopped: bool = False


class Turns:
    """Says which calls may be carried out now.

    Args:
        now: the time in seconds.
        share_bytes: the calls of a connection under way while others call; one call may always be.
        waiting_bytes: with more than this in calls that wait, it is full.
    """

    def __init__(
        self, now: Callable[[], float], share_bytes: float = SHARE_BYTES, waiting_bytes: int = WAITING_BYTES
    ) -> None:
        self._now = now
        self._share_bytes = share_bytes
        self._most_waiting_bytes = waiting_bytes
        self._period = 0
        self._shares: dict[bytes, _Share] = {}
        self.line: deque[_Share] = deque()
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

    def add(self, call: Call) -> bool:
        """Take note of a call; one that may not be carried out at once is handed back by ``next``.

        Returns:
            Whether it may be carried out at once.
        """
        if self._share_bytes == math.inf:
            return True
        period = int(self._now() / PERIOD_SECONDS)
        if period != self._period:
            self._begin_period(period)
        share = self._shares.get(call.peer)
        if share is None:
            share = self._shares[call.peer] = _Share(call.peer)
        share.called_in = period
        if not share.waiting:
            # Who has nothing under way may always call, whatever the others do.
            if (share.recent.calls == share.earlier.calls == 0 and share.debt <= 0) or _has_room(
                share, call, self._present_share
            ):
                return True
            self.line.append(share)
        share.waiting.append(call)
        self._keep(share, call.size + _KEPT_BYTES)
        return False

    def began(self, call: Call) -> None:
        """Note that a call is under way from now on, whose answer comes later."""
        share = self._shares.get(call.peer)
        if share is None:
            return
        weight = call.size + CALL_BYTES
        share.recent.weight += weight
        share.recent.calls += 1
        call.counted_in = share.recent
        share.debt = max(0.0, weight - self._share_bytes)

    def ended(self, call: Call) -> None:
        """Note that a call is answered that was under way."""
        if call.counted_in is not None:
            call.counted_in.weight -= call.size + CALL_BYTES
            call.counted_in.calls -= 1
        for share in self.line:
            if share.debt and share.peer != call.peer:
                share.debt = max(0.0, share.debt - self._share_bytes)

    def next(self) -> Call | None:
        """Give a call that may be carried out now; connections take turns."""
        self._look_at_time()
        present_share = self._present_share
        for _ in range(len(self.line)):
            share = self.line.popleft()
            call = share.waiting[0]
            has_room = _has_room(share, call, present_share)
            if has_room:
                share.waiting.popleft()
                self._keep(share, -call.size - _KEPT_BYTES)
            if share.waiting:
                self.line.append(share)
            if has_room:
                return call
        return None

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

    def _keep(self, share: _Share, more: int) -> None:
        self._waiting_bytes += more
        self.is_full = self._waiting_bytes > self._most_waiting_bytes
        share.waiting_bytes += more
        if share.is_stopped and share.waiting_bytes <= WAITING_BYTES_OF_ONE / 2:
            share.is_stopped = False
            self._has_new_room = True

    @property
    def _present_share(self) -> float:
        if len(self._shares) == 1:
            return math.inf
        return self._share_bytes * (_BUSY if len(self.line) == len(self._shares) else 1)

    def _look_at_time(self) -> None:
        period = int(self._now() / PERIOD_SECONDS)
        if period != self._period:
            self._begin_period(period)

    def _begin_period(self, period: int) -> None:
        is_next = period == self._period + 1
        self._period = period
        for share in self._shares.values():
            # What has counted all its calls out counts anew: with a hundred connections most have.
            recent = Unanswered() if share.earlier.calls else share.earlier
            share.earlier, share.recent = share.recent if is_next else Unanswered(), recent
            share.debt = 0.0
        oldest = period - 1
        self._shares = {
            peer: share for peer, share in self._shares.items() if share.called_in >= oldest or share.waiting
        }


def _has_room(share: _Share, call: Call, most: float) -> bool:
    recent, earlier = share.recent, share.earlier
    under_way = recent.weight + earlier.weight + share.debt
    if under_way <= 0:
        return True
    return under_way + call.size + CALL_BYTES <= most and recent.calls + earlier.calls < _MOST_CALLS


class CallQueue:
    """Carries calls out that had to wait until earlier ones of their connection were answered.

    Args:
        turns: says which calls may be carried out.
        carry_out: does that.
        may_go_on: asked before each call that has waited.
        on_room: called when it was full, for all or for a connection, and takes calls again.
    """

    def __init__(
        self,
        turns: Turns,
        carry_out: Callable[[Call], None],
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

    def release(self) -> None:
        """Carry out all that waits."""
        for call in self._turns.rest():
            self._carry_out(call)

    def close(self) -> None:
        """Forget all that waits."""
        self._turns.rest()
        if self._next_look is not None:
            self._next_look.cancel()

    def _go_on(self) -> None:
        self._is_going_on = False
        was_full = self._turns.is_full
        while self._may_go_on() and (call := self._turns.next()) is not None:
            self._carry_out(call)
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
