"""The calls of a reader's programs that wait for a batch."""

import asyncio
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, nullcontext
from uuid import UUID

from xbus.broker.back.log import LogSlices
from xbus.broker.journal.log.slices.values import Place


class WaitingCalls:
    """Wakes waiting calls; of several calls of one program the newest counts.

    Each call waits by a future of its own: a thousand of them on one would look for each other whenever one ends.

    Args:
        slices: wake those who wait for more events.
    """

    def __init__(self, slices: LogSlices) -> None:
        self._slices = slices
        self._newest: dict[UUID, object] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self.changes = 0
        """Grows when ranges may have become free, or settings have changed."""

    def __contains__(self, program: UUID) -> bool:
        return program in self._newest

    @contextmanager
    def calling(self, program: UUID) -> Iterator[Callable[[], bool]]:
        """Have a call be the newest of its program; gives a check whether it still is.

        A program that calls again has not heard the answer to its former call.
        """
        call = self._newest[program] = object()
        try:
            yield lambda: self._newest.get(program) is call
        finally:
            if self._newest.get(program) is call:
                del self._newest[program]

    def forget(self, program: UUID) -> None:
        """End the calls of a program that leaves."""
        self._newest.pop(program, None)

    def wake(self) -> None:
        """Have all that wait look again."""
        self.changes += 1
        for woken in self._waiting:
            _wake(woken)

    async def wait(self, changes: int, until: float, types: Set[int] = frozenset(), head: int = 0) -> None:
        """Wait until something may have changed since, or the time is over.

        Args:
            changes: as they were then.
            types: of the events that matter; none where more events change nothing.
            head: the end of the log then.
        """
        if self.changes != changes:
            return
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        timer = loop.call_at(until, _wake, woken)
        self._waiting.add(woken)
        try:
            with self._slices.waking(types, Place(head + 1), woken) if types else nullcontext():
                await woken
        finally:
            timer.cancel()
            self._waiting.discard(woken)


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
