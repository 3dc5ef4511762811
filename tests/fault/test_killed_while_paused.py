"""The broker is killed while something is paused: the pause holds, and after its end all comes once."""

import asyncio
from datetime import UTC, datetime, timedelta

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import xbus
from tests.support.waiting import eventually


async def test_a_pause_outlives_a_killed_broker(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 2})
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as paused, OldConsumer(daemon.back, "c_2") as other:
        await xbus(daemon, "pause", "role", "c_1", "--reason", "moving house")
        await eventually(lambda: "recipient paused" in daemon.log, "nothing begins any more")
        owed = []
        for _ in range(3):
            async with OldEmitter(daemon.front) as emitter:
                owed += [await emitter.emit(b"item") for _ in range(5)]
            daemon.crash()
            await asyncio.to_thread(daemon.start)
        await other.wait_for(owed)
        assert paused.committed == []
        await xbus(daemon, "resume", "role", "c_1")
        await paused.wait_for(owed)
    assert paused.committed == owed


async def test_a_pause_that_ends_while_the_broker_is_away(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    until = datetime.now(UTC) + timedelta(seconds=8)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        await xbus(daemon, "pause", "service", "c", "--reason", "moving house", "--until", until.isoformat())
        await eventually(lambda: "recipient paused" in daemon.log, "nothing begins any more")
        owed = await emitter.emit(b"item")
        daemon.crash()
        await eventually(lambda: datetime.now(UTC) > until, "its time is over")
        await asyncio.to_thread(daemon.start)
        await consumer.wait_for([owed])
    assert consumer.committed == [owed]
