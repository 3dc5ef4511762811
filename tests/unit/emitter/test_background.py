"""The loop behind blocking emitters."""

import asyncio
import threading
from inspect import CORO_CLOSED, getcoroutinestate

from tests.support.waiting import DEADLINE_SECONDS
from xbus.emitter.background import Background
from xbus.errors import Refused


def test_what_an_interrupted_call_left_comes_to_its_end() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            ended.set()

    background = Background("test")
    asyncio.run_coroutine_threadsafe(work(), background._loop)
    assert begun.wait(DEADLINE_SECONDS)
    background.close()

    assert ended.is_set()


def test_a_loop_with_nothing_to_do_is_closed() -> None:
    background = Background("test")

    async def answer() -> int:
        return 42

    assert background.run(answer()) == 42
    background.close()


def test_what_comes_while_it_closes_is_refused() -> None:
    begun = threading.Event()
    codes: list[str] = []

    async def answer() -> int:
        return 42

    def come() -> None:
        coroutine = answer()
        try:
            background.run(coroutine)
        except Refused as refused:
            codes.append(refused.code)
        assert getcoroutinestate(coroutine) == CORO_CLOSED

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(come)

    background = Background("test")
    asyncio.run_coroutine_threadsafe(work(), background._loop)
    assert begun.wait(DEADLINE_SECONDS)
    background.close()
    come()

    assert codes == ["not_open", "not_open"]


def test_a_forked_process_gets_a_loop_of_its_own_and_leaves_that_of_its_parent_alone() -> None:
    background = Background("test")
    of_parent = background._loop

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    background.forked()
    own = background.run(running())

    assert own is not of_parent
    assert background.run(running()) is own
    assert of_parent.is_running()
    background.close()
    assert of_parent.is_running()
    of_parent.call_soon_threadsafe(of_parent.stop)
