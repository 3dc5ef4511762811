"""What dies outside of the broker's tasks ends it; what nobody asked for does not."""

import asyncio
import gc

import pytest

from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.crash_on_error import CrashOnCallbackError
from xbus.errors import JournalUnavailable
from xbus.loop_turn import LoopTurn


class Boom(Exception):
    """What a callback dies of."""


def boom() -> None:
    raise Boom


async def watched() -> "asyncio.Task[None]":
    task: asyncio.Task[None] = asyncio.create_task(CrashOnCallbackError().watch())
    await asyncio.sleep(0)
    return task


async def test_a_callback_that_raises() -> None:
    watching = await watched()
    asyncio.get_running_loop().call_soon(boom)
    asyncio.get_running_loop().call_soon(boom)
    with pytest.raises(Boom):
        await watching


async def test_a_callback_that_is_cancelled_does_not_end_the_watch() -> None:
    watching = await watched()

    def cancelled() -> None:
        raise asyncio.CancelledError

    asyncio.get_running_loop().call_soon(cancelled)
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(boom)
    with pytest.raises(Boom):
        await watching


async def test_a_task_that_nobody_awaits() -> None:
    watching = await watched()

    async def dies() -> None:
        raise Boom

    task = asyncio.create_task(dies())
    await asyncio.wait([task])
    del task
    gc.collect()
    with pytest.raises(Boom):
        await watching


async def test_an_answer_that_nobody_asked_for_is_no_death() -> None:
    watching = await watched()
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answer.set_exception(JournalUnavailable("the database is away"))
    del answer
    gc.collect()
    asyncio.get_running_loop().call_exception_handler({"message": "something was odd"})
    await asyncio.sleep(0)
    assert not watching.done()
    watching.cancel()


async def test_what_is_done_at_the_end_of_a_turn_and_raises() -> None:
    watching = await watched()
    LoopTurn().at_end(boom)
    async with asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(Boom):
            await watching
