"""An archived envelope that its emitter asks for comes again, as any other does."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import StartDaemon
from tests.support.archives import archive
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.showing import become, shown
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.errors import Failed

ITEMS = [b"one", b"two", b"three"]


@pytest.fixture
def daemon(database_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(database_url, {"test_event": {"c": []}})
    return start_daemon(database_url, {"journal": {"keep_settled_days": 0}})


@pytest.fixture
async def consumer(daemon: Daemon) -> AsyncIterator[OldConsumer]:
    async with OldConsumer(daemon.back, "c_1") as consumer:
        yield consumer


async def archived(daemon: Daemon, folder: Path) -> str:
    """An envelope that was delivered, and whose items are in files only."""
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, *ITEMS)
        await emitter.end(envelope_id, event_id)
    await become(daemon.url, envelope_id, c_1="done")
    # What is done is noted a little later.
    report = await asyncio.to_thread(_until_there_is_some, lambda: archive(daemon.url, folder).envelopes)
    assert report == 1
    return envelope_id


def _until_there_is_some(count: Callable[[], int]) -> int:
    found = 0
    while not found:
        found = count()
    return found


async def test_its_items_are_put_back_and_delivered_again(
    daemon: Daemon, consumer: OldConsumer, tmp_path: Path
) -> None:
    envelope_id = await archived(daemon, tmp_path / "archive")

    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        again = await asyncio.gather(*(emitter.replay(envelope_id) for _ in range(3)))

    assert len({envelope_id, *again}) == 4
    for repeat in again:
        await become(daemon.url, repeat, c_1="done")
        assert consumer.items(repeat) == ITEMS
        assert shown(daemon.url, repeat).hash == shown(daemon.url, envelope_id).hash
    assert daemon.log.count("an archived envelope is put back") == 1


async def test_an_archive_that_is_away_is_told_and_nothing_is_lost(
    daemon: Daemon, consumer: OldConsumer, tmp_path: Path
) -> None:
    place, elsewhere = tmp_path / "archive", tmp_path / "elsewhere"
    envelope_id = await archived(daemon, place)
    place.rename(elsewhere)

    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD, retry_seconds=0) as emitter:
        with pytest.raises(Failed) as caught:
            await emitter.replay(envelope_id)
        assert caught.value.code == "envelope_archived"
        assert str(place) not in str(caught.value)
        assert "[archive_missing]" in daemon.log

        elsewhere.rename(place)
        again = await emitter.replay(envelope_id)

    await eventually(lambda: consumer.items(again) == ITEMS, "the items come again")


async def test_a_command_that_hangs_does_not_outlive_the_broker(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url, {"journal": {"keep_settled_days": 0}, "daemon": {"stop_timeout": 1}})
    async with OldConsumer(daemon.back, "c_1"):
        envelope_id = await archived(daemon, tmp_path / "archive")
    (file,) = (tmp_path / "archive").rglob("*.parquet")
    file.unlink()
    os.mkfifo(file)  # who opens it waits for one who writes

    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD, retry_seconds=0) as emitter:
        call = asyncio.create_task(emitter.replay(envelope_id))
        broker = psutil.Process(daemon.pid)
        await eventually(broker.children, "the command is called")
        (command,) = broker.children()
        command.suspend()
        assert await asyncio.to_thread(daemon.stop) == 0

        with pytest.raises(Failed):
            await call
    await eventually(lambda: not _goes_on(command), "the command has ended")


def _goes_on(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
