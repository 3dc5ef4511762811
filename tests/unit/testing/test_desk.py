"""The author's thread in virtual time tells of an outcome as the real one does."""

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import eventually
from xbus.testing.desk import SteppingThread


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
async def desk() -> AsyncIterator[SteppingThread]:
    made = SteppingThread(lambda: False, lambda: None)
    yield made
    made.close()


async def test_who_waits_is_called_in_the_turn_in_which_the_job_ends(desk: SteppingThread, told: list[str]) -> None:
    outcome = desk.give(lambda: "done")
    asyncio.get_running_loop().call_soon(told.append, "the next turn")
    outcome.add_done_callback(lambda done: told.append(f"first: {done.result()}"))
    outcome.add_done_callback(lambda done: told.append(f"second: {done.result()}"))
    await eventually(lambda: "the next turn" in told, "the loop goes on")
    assert told == ["first: done", "second: done", "the next turn"]


async def test_behind_one_who_waits_and_raises_the_next_job_is_done(desk: SteppingThread, told: list[str]) -> None:
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context.get("exception")))

    def fail() -> None:
        raise ValueError("on_start failed")

    desk.give(fail).add_done_callback(lambda outcome: outcome.result())
    desk.give(lambda: told.append("next"))
    await eventually(lambda: bool(told), "the next job is done")
    assert [type(error) for error in raised] == [ValueError]


async def test_a_coroutine_that_never_began_is_closed_with_the_thread(desk: SteppingThread) -> None:
    """1. The author's method gives a coroutine. 2. The program is killed in the turn in which the loop hears of it."""

    async def stop() -> None:
        """Never run."""

    stopping = stop()
    desk.give(lambda: desk.finished(stopping))
    asyncio.get_running_loop().call_soon(desk.close)
    await eventually(lambda: inspect.getcoroutinestate(stopping) == inspect.CORO_CLOSED, "the coroutine is closed")
