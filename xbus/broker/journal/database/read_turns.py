"""Shares the threads that read the journal among those on whose behalf they read."""

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from xbus.errors import JournalUnavailable

MOST_WAITING = 1000
"""Reads of a caller that may wait. More help callers that send many questions ahead, and take memory. The broker itself
has no such bound: it waits for its reads, and must not fail for their number."""

BROKER = b""
"""The caller of the reads that nobody called for."""


class ReadTurns:
    """Gives turns to reads; those that wait on behalf of different callers take them one after the other.

    So whoever asks a thousand questions ahead delays its own answers, and neither those of others nor what the broker
    reads for itself.

    Args:
        threads: the reads that are carried out side by side.
    """

    def __init__(self, threads: int) -> None:
        self._free = threads
        # The caller that has waited for longest is the first.
        self._waiting: dict[bytes, deque[Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: bytes) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the block.

        Raises:
            JournalUnavailable: too many reads of this caller wait.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._end()

    async def _wait(self, caller: bytes) -> None:
        waiting = self._waiting.setdefault(caller, deque())
        if caller != BROKER and len(waiting) >= MOST_WAITING:
            raise JournalUnavailable(
                f"{MOST_WAITING} calls of this connection wait for the journal", "wait for their answers, then repeat"
            )
        turn: Future[None] = get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # The turn came in the same moment as the end of the wait.
                self._end()
            raise

    def _end(self) -> None:
        """Give the turn to the oldest read of the next caller, who then goes behind all others."""
        while self._waiting:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
