"""The calls of a reader's programs that wait for a batch."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from xbus.broker.back.log import LogSlices
from xbus.broker.journal.log.slices import Place


class WaitingCalls:
    """Wakes waiting calls; of several calls of one program the newest counts.

    Args:
        slices: wake those who wait for more events.
    """

    def __init__(self, slices: LogSlices) -> None:
        self._slices = slices
        self._newest: dict[UUID, object] = {}
        self.changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Is done when ranges may have become free, or settings have changed."""

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
        changed, self.changed = self.changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    @staticmethod
    async def wait_for_ranges(changed: "asyncio.Future[None]", until: float) -> None:
        """Wait until ranges may have become free, or the time is over. More events change nothing."""
        await asyncio.wait({changed}, timeout=max(0.0, until - asyncio.get_running_loop().time()))

    async def wait_for_more(
        self, types: frozenset[int], head: int, changed: "asyncio.Future[None]", until: float
    ) -> None:
        """Wait until there may be more than there was, or the time is over.

        Args:
            types: of the events that matter.
            head: the end of the log then.
            changed: as it was then.
        """
        loop = asyncio.get_running_loop()
        beyond = loop.create_task(self._slices.beyond(types, Place(head + 1)))
        try:
            timeout = max(0.0, until - loop.time())
            await asyncio.wait({beyond, changed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            beyond.cancel()
