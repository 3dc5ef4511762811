"""Carries the calls of a server out, each when its turn has come."""

import asyncio
from collections.abc import Callable

from xbus.rpc.exchange.call import Call
from xbus.rpc.exchange.turns import PERIOD_SECONDS, Turns


class CallQueue:
    """Carries calls out at once, or keeps them until earlier ones of their connection are answered.

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

    @property
    def is_full(self) -> bool:
        """Check whether so much waits that no further calls should be added."""
        return self._turns.is_full

    def add(self, call: Call) -> None:
        """Carry a call out now or later; see ``Turns.add``."""
        if self._turns.add(call):
            self._carry_out(call)
        elif self._next_look is None:
            self._look_later()

    def began(self, call: Call) -> None:
        """Note that a call is under way from now on, whose answer comes later."""
        self._turns.began(call)

    def ended(self, call: Call) -> None:
        """Note that a call is answered that was under way."""
        self._turns.ended(call)
        self.go_on()

    def go_on(self) -> None:
        """Carry out soon what may be carried out now; first those get their answers who have waited for them."""
        if self._turns.has_waiting and not self._is_going_on:
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
        if self._turns.has_waiting:
            self._look_later()
