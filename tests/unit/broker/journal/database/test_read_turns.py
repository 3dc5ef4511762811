"""Reads take turns among those on whose behalf they read."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from xbus.broker.journal.database.connection import BROKER, MOST_WAITING, ReadTurns
from xbus.errors import JournalUnavailable

ASKING, HONEST = b"asking", b"honest"


async def settle() -> None:
    """Let all tasks go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_ahead_delays_no_other() -> None:
    turns = ReadTurns(1)
    order: list[bytes] = []

    async def read(caller: bytes) -> None:
        async with turns.turn(caller):
            order.append(caller)
            await asyncio.sleep(0)

    callers = [ASKING] * 5 + [HONEST, BROKER, HONEST]
    await asyncio.gather(*map(read, callers))
    assert order == [ASKING, ASKING, HONEST, BROKER, ASKING, HONEST, ASKING, ASKING]


async def test_a_read_that_is_given_up_takes_no_turn_with_it() -> None:
    turns = ReadTurns(1)
    async with AsyncExitStack() as first:
        await first.enter_async_context(turns.turn(ASKING))
        waiting = [asyncio.create_task(turns.turn(ASKING).__aenter__()) for _ in range(2)]
        await settle()
        waiting[0].cancel()
        await settle()
    # The turn is the second one's in the moment in which that is given up, too.
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(10), turns.turn(HONEST):
        pass


async def test_too_many_reads_of_a_caller_are_refused_and_those_of_others_are_not() -> None:
    turns = ReadTurns(1)
    async with turns.turn(ASKING):
        waiting = [asyncio.create_task(turns.turn(ASKING).__aenter__()) for _ in range(MOST_WAITING)]
        await settle()
        with pytest.raises(JournalUnavailable, match="calls of this connection wait"):
            await turns.turn(ASKING).__aenter__()
        waiting.append(asyncio.create_task(turns.turn(HONEST).__aenter__()))
        # The broker waits for its own reads, however many there are.
        waiting += [asyncio.create_task(turns.turn(BROKER).__aenter__()) for _ in range(MOST_WAITING + 1)]
        await settle()
        assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
