"""Slices that are read ahead: what becomes of them when the back stops, or when they can't be read."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Slice, SliceBounds, Stretch

WANTED = frozenset({1}), [Stretch(0, LAST_HASH, Place(1))], SliceBounds(9, 1_000)
FOUND = Slice(Place(5))


class FakeLog:
    """A log of which each slice is the same; the first one may be held, or fail.

    Args:
        error: of the first read; None where it goes well.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.head = 100
        self.tail = SimpleNamespace(emitters=lambda *_: set(), slice=lambda *_: None)
        self.archived = SimpleNamespace(on_settled=lambda _: None)
        self.gate = asyncio.Event()
        self.reads = 0
        self._error = error

    def on_grown(self, _: object) -> None:
        """Grow never."""

    async def emitter_logins(self, _: object) -> dict[int, str | None]:
        return {}

    async def read(self, *_: Any) -> Slice:
        self.reads += 1
        if self.reads == 1:
            await self.gate.wait()
            if self._error is not None:
                raise self._error
        return FOUND


async def following(log: FakeLog) -> tuple[LogSlices, "asyncio.Task[None]"]:
    slices = LogSlices(cast(LogReader, log))
    task = asyncio.create_task(slices.follow())
    await asyncio.sleep(0)
    slices.read_ahead(*WANTED)
    await asyncio.sleep(0)
    return slices, task


async def test_who_waits_for_a_slice_when_the_back_stops_reads_for_itself() -> None:
    log = FakeLog()
    slices, task = await following(log)
    waiting = asyncio.create_task(slices.read(*WANTED))
    await asyncio.sleep(0)
    task.cancel()
    assert await waiting is FOUND
    assert log.reads == 2


async def test_nothing_is_read_ahead_of_a_back_that_stops() -> None:
    log = FakeLog()
    log.gate.set()
    slices, task = await following(log)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    slices.read_ahead(*WANTED)
    await asyncio.sleep(0)
    assert log.reads == 1


async def test_a_slice_that_can_not_be_read_ends_nothing() -> None:
    log = FakeLog(MemoryError("too large"))
    log.gate.set()
    slices, task = await following(log)
    assert await slices.read(*WANTED) is FOUND
    assert not task.done()
    task.cancel()


async def test_who_gives_up_waiting_leaves_the_slice_alone() -> None:
    log = FakeLog()
    slices, task = await following(log)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await slices.read(*WANTED)
    log.gate.set()
    assert await slices.read(*WANTED) is FOUND
    assert not task.done()
    task.cancel()
