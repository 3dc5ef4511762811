"""Does things once for all that one turn of the event loop brings, and without a turn of their own."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Act: TypeAlias = Callable[[], object]


class LoopTurn:
    """Collects acts for the end of a turn of the loop: envelopes are put, writes handed over, answers sent.

    Attributes:
        acts: what is to be done; while somebody is at work, acts may be appended here, too.
        number: grows whenever sockets are looked at, or something else is run.
        is_busy: whether somebody is at work who calls ``end`` then.
        wakes: whether callers were told something whose next acts are to be done in the turn in which they go on. Each
            turn costs a call of the system.
    """

    def __init__(self) -> None:
        self.acts: deque[Act] = deque()
        self.number = 0
        self.is_busy = False
        self.wakes = False

    def at_end(self, act: Act) -> None:
        """Do something behind all reads of this turn of the loop; in the next turn if nobody is at work."""
        if not self.acts and not self.is_busy:
            asyncio.get_running_loop().call_soon(self.end)
        self.acts.append(act)

    def run(self, act: Callable[..., object], *args: object) -> None:
        """Do something, and then at once what ``at_end`` got meanwhile."""
        if self.is_busy:
            act(*args)
            return
        self.number += 1
        self.is_busy = True
        try:
            act(*args)
        finally:
            self.end()

    def end(self) -> None:
        """Do what is to be done at the end; acts behind an interrupted one are done in the next turn."""
        acts = self.acts
        self.is_busy = True
        try:
            while acts:
                act = acts.popleft()
                try:
                    act()
                except Exception as error:
                    tell(error)
        finally:
            self.is_busy = False
            if acts:
                asyncio.get_running_loop().call_soon(self.end)
        if self.wakes:
            self.wakes = False
            # The next turn ends behind those who go on in it.
            self.at_end(_nothing)


def _nothing() -> None:
    """Hold the place of acts that may come."""


def tell(error: Exception) -> None:
    """Tell of an error as the loop does: all that comes behind it is done all the same."""
    # As of a handle of the loop, by which the broker tells that a callback has died, and ends.
    context = {"message": "a turn of the loop failed", "exception": error, "handle": None}
    asyncio.get_running_loop().call_exception_handler(context)
