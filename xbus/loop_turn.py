"""Does things once for all that one turn of the event loop brings, and without a turn of their own."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from typing import TypeAlias

Act: TypeAlias = Callable[[], object]

_RINGS_AT_ONCE = 4096
"""The rings of a thread, a byte each, that are heard at once."""


class LoopTurn:
    """Collects acts for the end of a turn of the loop: envelopes are put, writes handed over, answers sent.

    Attributes:
        acts: what is to be done; while somebody is at work, acts may be appended here, too.
        told: what threads have for the loop; they append it, and ring.
        number: grows whenever sockets are looked at, or something else is run.
        is_busy: whether somebody is at work who calls ``end`` then.
        wakes: whether callers were told something whose next acts are to be done in the turn in which they go on. Each
            turn costs a call of the system.
    """

    def __init__(self) -> None:
        self.acts: deque[Act] = deque()
        self.told: deque[Act] = deque()
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

    def hear(self) -> None:
        """Do what threads have for the loop."""
        while self.told:
            try:
                self.told.popleft()()
            except Exception as error:
                tell(error)


class ThreadBell:
    """Has the loop do what a thread has appended to ``LoopTurn.told``. To be made in the running loop.

    The thread rings by a pipe. A socket would take more than twice the time, and a call of ``call_soon_threadsafe`` ten
    calls of Python functions.

    Args:
        turn: in which the acts are done.
    """

    def __init__(self, turn: LoopTurn) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn = turn
        rung, bell = os.pipe()
        for end in (rung, bell):
            os.set_blocking(end, False)
        self._rung, self._bell = FileIO(rung), FileIO(bell, "w")
        self._loop.add_reader(rung, turn.run, self._hear)

    def ring(self) -> None:
        """Have the loop do soon what is told; called by the thread."""
        try:
            # A full pipe takes no more rings, and needs none.
            self._bell.write(b"\0")
        except OSError:  # the loop hears no rings any more
            self._tell_unrung()

    def end(self) -> None:
        """Ring no more; called by the thread, or when it has ended."""
        self._bell.close()

    def close(self) -> None:
        """Hear no rings any more. The loop does all the same what the thread tells, as long as it lives."""
        if not self._rung.closed:
            self._loop.remove_reader(self._rung)
            self._rung.close()
            self._tell_unrung()

    def _tell_unrung(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._turn.run, self._hear)

    def _hear(self) -> None:
        if not self._rung.closed:
            self._rung.read(_RINGS_AT_ONCE)
        self._turn.hear()


def _nothing() -> None:
    """Hold the place of acts that may come."""


def tell(error: Exception) -> None:
    """Tell of an error as the loop does: all that comes behind it is done all the same."""
    # As of a handle of the loop, by which the broker tells that a callback has died, and ends.
    context = {"message": "a turn of the loop failed", "exception": error, "handle": None}
    asyncio.get_running_loop().call_exception_handler(context)
