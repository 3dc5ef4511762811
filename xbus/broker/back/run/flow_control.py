"""Bounded ways between the parts of a run: what is full makes the one before it wait."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeAlias

from xbus.broker.back.log import RunBatch
from xbus.broker.back.recipients import Absent, RecipientFailed
from xbus.broker.journal.writes.bulk import OutputPage

Portion: TypeAlias = RunBatch | OutputPage
"""Items that go to a recipient together: they themselves, or where they lie in the journal."""


class StageInbox:
    """The next items for a recipient; several parents put into it, and the first goes first.

    One inbox for all parents, and never a wait for a certain one of them: with a queue for each, a merge behind a slow
    branch would stand still for ever.

    Args:
        max_bytes: who puts waits while more than this is held.
        parents: how many will put, and close it.
    """

    def __init__(self, max_bytes: int, parents: int) -> None:
        self._max_bytes = max_bytes
        self._open_parents = parents
        self._held: deque[tuple[str, Portion]] = deque()
        self._bytes = 0
        self._abandoned = False
        self._changed = asyncio.Condition()

    async def put(self, node: str, portion: Portion) -> None:
        """Add items for ``node``, as soon as there is room."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._abandoned or self._bytes <= self._max_bytes)
            if self._abandoned:
                return
            self._held.append((node, portion))
            self._bytes += portion.size
            self._changed.notify_all()

    async def close(self) -> None:
        """Say, once for each parent, that no more comes."""
        async with self._changed:
            self._open_parents -= 1
            self._changed.notify_all()

    async def abandon(self) -> None:
        """Let everything go: nobody takes any more, and nobody shall wait to put."""
        async with self._changed:
            self._abandoned = True
            self._held.clear()
            self._bytes = 0
            self._changed.notify_all()

    async def whole(self, max_bytes: int) -> list[RunBatch] | None:
        """Wait until all is there, and take it.

        Returns:
            None, and nothing is taken, as soon as it is more than ``max_bytes``, or some of it lies in the journal.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._open_parents == 0 or self._bytes > max_bytes)
            batches = [portion for _, portion in self._held if isinstance(portion, RunBatch)]
            if self._bytes > max_bytes or len(batches) < len(self._held):
                return None
            self._held.clear()
            self._bytes = 0
            return batches

    async def __aiter__(self) -> AsyncIterator[tuple[str, Portion]]:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._held) or self._open_parents == 0)
                if not self._held:
                    return
                node, portion = self._held.popleft()
                self._bytes -= portion.size
                self._changed.notify_all()
            yield node, portion


class CallWindow:
    """Bounds the calls on their way to a recipient without an answer.

    Args:
        max_calls: this many calls.
        max_bytes: this many bytes; a single larger one may go when nothing else does.
    """

    def __init__(self, max_calls: int, max_bytes: int) -> None:
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._calls = 0
        self._bytes = 0
        self._changed = asyncio.Condition()

    async def enter(self, size: int) -> None:
        """Wait for room for one call of ``size`` bytes, and take it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_room(size))
            self._calls += 1
            self._bytes += size

    def _has_room(self, size: int) -> bool:
        return self._calls == 0 or (self._calls < self._max_calls and self._bytes + size <= self._max_bytes)

    async def leave(self, size: int) -> None:
        """Give the room of an answered call back."""
        async with self._changed:
            self._calls -= 1
            self._bytes -= size
            self._changed.notify_all()


async def together(*parts: Coroutine[Any, Any, Any]) -> None:
    """Do all parts at once; when one fails the others are cancelled.

    No ``asyncio.TaskGroup``: where a part fails while the caller is cancelled, that raises the failure alone, and the
    caller would never learn that it is cancelled.

    Raises:
        RecipientFailed, Absent: the first that a part raised.
        BaseExceptionGroup: what else the parts raised.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        first = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    others = [error for error in _errors(tasks) if not isinstance(error, (RecipientFailed, Absent))]
    if others:
        raise BaseExceptionGroup("parts of a run failed", others)
    for failure in [*_errors(first), *_errors(tasks)]:
        raise failure


def _errors(tasks: "Iterable[asyncio.Future[Any]]") -> list[BaseException]:
    outcomes = [task.exception() for task in tasks if not task.cancelled()]
    return [outcome for outcome in outcomes if outcome is not None]
