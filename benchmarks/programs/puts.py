"""``python -m benchmarks.programs.puts FRONT LOAD PID``: puts envelopes of one item; the load is a ``Load`` in JSON.

Each of the emitters, all in this process, has so many envelopes in flight. Once all are acknowledged the program prints
a line of JSON: when it ``began`` and ``ended`` in seconds of the machine's monotonic clock, the processor seconds that
it took in between, those that the broker with that PID had taken before, and the milliseconds within which the half and
99 % of the envelopes were acknowledged.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from time import monotonic
from uuid import uuid4

from benchmarks.bus import EMITTER, EVENT_TYPE, PASSWORD
from benchmarks.buses import OTHER_TYPE
from benchmarks.envelopes.load import Load
from benchmarks.envelopes.stamps import stamped, stamped_map
from benchmarks.envelopes.stopwatch import MS, Stopwatch
from xbus.emitter import AsyncEmitter

RUN = uuid4().hex
"""Begins the keys of this process, so that no other run of it has the same."""

ORDERED_ONE_IN = 10


async def main(front: str, load: Load, broker_pid: int) -> None:
    """Log all emitters in, put the envelopes, and print how long it took."""
    async with AsyncExitStack() as exit_stack:
        opened = [
            await exit_stack.enter_async_context(AsyncEmitter(front, EMITTER, PASSWORD)) for _ in range(load.emitters)
        ]
        turns, seconds = iter(range(load.envelopes)), list[float]()
        stopwatch = Stopwatch(broker_pid)
        await asyncio.gather(*(put(emitter, turns, seconds, load) for emitter in opened for _ in range(load.in_flight)))
        print(json.dumps(stopwatch.report(seconds)), flush=True)


async def put(emitter: AsyncEmitter, turns: Iterator[int], seconds: list[float], load: Load) -> None:
    """Put one envelope after the other, until all of them have been begun by somebody."""
    for turn in turns:
        key = f"client {turn % load.keys}" if load.keys else None
        began = monotonic()
        if load.is_real:
            await put_real(emitter, turn, load.item_bytes)
        else:
            await emitter.put(EVENT_TYPE, [stamped(load.item_bytes)], ordering_key=key)
        seconds.append(monotonic() - began)
        if load.pause_ms:
            await asyncio.sleep(load.pause_ms / MS)


async def put_real(emitter: AsyncEmitter, turn: int, item_bytes: int) -> None:
    """Put an envelope as a shop does, which names its orders and tells where they come from."""
    await emitter.put(
        (EVENT_TYPE, OTHER_TYPE)[turn % 2],
        [stamped_map(item_bytes)],
        key=f"{RUN} {turn}",
        ordering_key=None if turn % ORDERED_ONE_IN else f"client {turn % 1000}",
        headers={"shop": "Paris", "user": "Ada"},
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Load(**json.loads(sys.argv[2])), int(sys.argv[3])))
