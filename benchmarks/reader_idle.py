"""Programs of a reader that wait at the head of the log: the broker's processor time, as percent of a core.

A thousand programs share eight ranges, each with a call under way; with the usual lease each calls anew every 3.3 s.
The floor is the same broker without them. Beside it stands how long after an acknowledgement a waiting program has the
event, in ms.
"""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.bus import EMITTER, EVENT_TYPE, ONE_CONSUMER, PASSWORD, running_bus, set_up
from benchmarks.databases import Databases
from benchmarks.percentiles import percentile
from benchmarks.processes import cpu_seconds
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.daemon import Daemon
from xbus.broker.journal.configuration import ReaderSpec, RoleSpec
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

READER = "statistics"
SETTLE_SECONDS = 8.0
"""Seconds until all have called twice. Their logins and first calls would count otherwise."""

MEASURED_SECONDS = 15.0
WAKES = 50
READER_SPEC = ReaderSpec(READER, frozenset({EVENT_TYPE}), ranges=8)
WITH_READER = replace(
    ONE_CONSUMER, roles={**ONE_CONSUMER.roles, READER: RoleSpec(READER, READER)}, readers={READER: READER_SPEC}
)


def with_programs(programs: int) -> Callable[[Databases, Sizes], Result]:
    """Make the scenario with so many programs."""

    def measure(databases: Databases, sizes: Sizes) -> Result:
        with databases() as url:
            set_up(url, WITH_READER)
            with running_bus(url, None) as daemon:
                return asyncio.run(_measure(daemon, programs))

    return measure


class _Waiting:
    """Programs that wait, each in a loop of calls over one connection."""

    def __init__(self, client: Client, token: str) -> None:
        self._client = client
        self._token = token
        self.calls = 0
        self.got: asyncio.Queue[float] = asyncio.Queue()

    async def run(self, number: int) -> None:
        program, done = str(uuid.UUID(int=number + 1)), None
        while True:
            options: dict[str, Any] = {"wait": 20.0} if done is None else {"wait": 20.0, "done": done}
            answer: Any = await self._client.call("xbus.read_batch", self._token, program, options, timeout=60)
            self.calls += 1
            batch, done = answer["batch"], None
            if batch is not None:
                self.got.put_nowait(time.perf_counter())
                done = [batch["range"], batch["counter"], batch["to"]]


async def _measure(daemon: Daemon, programs: int) -> Result:
    floor = await _cpu_percent(daemon)
    context = new_context()
    client = Client(context, name="idle", clock=SystemClock())
    client.connect(daemon.back)
    try:
        session: Any = await client.call("xbus.login", READER, PASSWORD, timeout=60)
        waiting = _Waiting(client, session["token"])
        tasks = [asyncio.create_task(waiting.run(number)) for number in range(programs)]
        await asyncio.sleep(SETTLE_SECONDS)
        before = waiting.calls
        found = await _cpu_percent(daemon)
        calls = (waiting.calls - before) / MEASURED_SECONDS
        wakes = await _wake_ms(daemon, waiting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        client.close()
        context.destroy(linger=0)
    more = {"programs_percent": found - floor, "calls_per_s": calls}
    more |= {"wake_p50_ms": percentile(wakes, 50), "wake_p99_ms": percentile(wakes, 99)}
    return Result(found, floor, "%", more)


async def _cpu_percent(daemon: Daemon) -> float:
    before = cpu_seconds(daemon.pid)
    await asyncio.sleep(MEASURED_SECONDS)
    return 100 * (cpu_seconds(daemon.pid) - before) / MEASURED_SECONDS


async def _wake_ms(daemon: Daemon, waiting: _Waiting) -> list[float]:
    found = []
    async with AsyncEmitter(daemon.front, EMITTER, PASSWORD) as emitter:
        for number in range(WAKES):
            await emitter.put(EVENT_TYPE, ["x"], partition_key=str(number))
            acknowledged = time.perf_counter()
            found.append(1_000 * max(0.0, await waiting.got.get() - acknowledged))
            await asyncio.sleep(0.02)
    return found
