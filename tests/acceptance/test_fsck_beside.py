"""The examination of a journal beside a broker that writes it finds no fault that is none."""

import asyncio

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.old_clients import OldConsumer
from tests.support.operating import run_xbus
from xbus.emitter import AsyncEmitter

TIMES = 3


async def test_a_journal_that_is_written_has_no_faults(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 2})
    daemon = start_daemon(database_url)
    ended = asyncio.Event()

    async def send(emitter: AsyncEmitter) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            async with emitter.envelope(key=f"order {number}" if number % 3 == 0 else None) as envelope:
                for _ in range(2):
                    async with envelope.event("test_event") as event:
                        await event.send(number)

    async with (
        AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter,
        OldConsumer(daemon.back, "c_1") as consumer,
    ):
        sending = [asyncio.create_task(send(emitter)) for _ in range(1)]
        try:
            for _ in range(TIMES):
                await asyncio.sleep(0)
                result = await run_xbus(daemon, "fsck", "-o", "wide")
                assert result.returncode == 0, result.stdout + result.stderr
        finally:
            ended.set()
            await asyncio.gather(*sending)
        assert consumer.committed
    result = await run_xbus(daemon, "fsck", "-o", "wide")
    assert result.returncode == 0, result.stdout + result.stderr
