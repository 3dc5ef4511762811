"""The loop behind blocking emitters."""

import asyncio
import threading

from tests.support.waiting import DEADLINE_SECONDS
from xbus.emitter.background import Background


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
