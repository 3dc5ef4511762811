"""A broker that carries small envelopes keeps its two busy threads on one core."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from xbus.emitter import AsyncEmitter

MOST_SECONDS = 60.0

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) == 1, reason="there is no choice of cores"
)


def bound_threads(pid: int) -> list[int]:
    """The threads of a process that may run on one core only."""
    threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return [thread for thread in threads if len(os.sched_getaffinity(thread)) == 1]


async def put_until_bound(daemon: Daemon, seconds: float) -> list[int]:
    """Put small envelopes until two threads are bound, or for so long; the threads that are bound then.

    Threads that the loop begins meanwhile are bound until they are let go.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        while loop.time() < end and len(bound := bound_threads(daemon.pid)) != 2:
            await asyncio.gather(*(emitter.put("orders", [{"number": 1}]) for _ in range(20)))
    return bound


async def test_the_loop_and_the_writer_share_a_core_and_all_others_are_free(sqlite_url: str, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"orders": {"store": []}})
    daemon = Daemon(tmp_path, sqlite_url).start()
    try:
        first, second = await put_until_bound(daemon, MOST_SECONDS)
        assert first == daemon.pid
        assert os.sched_getaffinity(first) == os.sched_getaffinity(second)
    finally:
        daemon.kill()


async def test_a_broker_that_may_not_lets_them_run_anywhere(sqlite_url: str, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"orders": {"store": []}})
    daemon = Daemon(tmp_path, sqlite_url, {"daemon": {"one_core": "no"}}).start()
    try:
        assert await put_until_bound(daemon, 3.0) == []
    finally:
        daemon.kill()
