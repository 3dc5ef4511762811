"""Roles and readers that begin in the past get what only an archive has, without a person."""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.support.archives import archive
from tests.support.bus import PASSWORD, add_bus, add_reader, password_hash
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer
from tests.support.showing import become
from tests.support.waiting import eventually
from xbus.broker.journal.configuration import BusSpec, RoleSpec, apply, make_plan, read_stored, set_password
from xbus.broker.journal.database.connection import writing
from xbus.clock import SystemClock
from xbus.emitter import AsyncEmitter
from xbus.reader import AsyncReader

ENVELOPES = 5
ARCHIVED = 3


@pytest.fixture
def daemon(database_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(database_url, {"test_event": {"c": []}})
    settings = {"journal": {"keep_settled_days": 0}, "health": {"interval": 0.2}}
    return start_daemon(database_url, settings)


def add_late_ones(url: str) -> None:
    """Add a second role of the consumer and a reader, which begin with the oldest envelope."""
    with writing(url) as connection:
        late = BusSpec(roles={"c_2": RoleSpec("c_2", "c", start="oldest")})
        plan = make_plan(read_stored(connection), late)
        assert not plan.problems, plan.problems
        at = SystemClock().now()
        apply(connection, plan, at)
        set_password(connection, "role", "c_2", password_hash(), at)
    add_reader(url, "late", "test_event", ranges=2, start="oldest")


async def put_all(daemon: Daemon, first: int, end: int) -> list[str]:
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        return [
            str(
                (await emitter.put("test_event", [[number, "a"], [number, "b"]], partition_key=str(number))).envelope_id
            )
            for number in range(first, end)
        ]


async def read_all(daemon: Daemon, items: int) -> list[object]:
    found: list[object] = []
    async with AsyncReader(daemon.back, "late_1", PASSWORD) as reader:
        while len(found) < items:
            batch = await reader.next_batch()
            found += [item.value for item in batch]
            batch.done()
    return found


async def look_back(daemon: Daemon) -> list[object]:
    async with AsyncReader(daemon.back, "late_1", PASSWORD) as reader:
        return [item.value async for batch in reader.at("oldest") for item in batch]


async def test_they_get_what_is_archived_in_its_order(daemon: Daemon, tmp_path: Path) -> None:
    async with OldConsumer(daemon.back, "c_1"):
        ids = await put_all(daemon, 0, ARCHIVED)
        for envelope_id in ids:
            await become(daemon.url, envelope_id, c_1="done")
        await eventually_archived(daemon, tmp_path / "archive", ARCHIVED)
        ids += await put_all(daemon, ARCHIVED, ENVELOPES)
    await forget_the_newest(daemon)
    wanted = [[number, letter] for number in range(ENVELOPES) for letter in "ab"]

    add_late_ones(daemon.url)
    async with asyncio.timeout(60), OldConsumer(daemon.back, "c_2") as late:
        assert sorted(await read_all(daemon, len(wanted))) == wanted  # type: ignore[type-var]
        assert await look_back(daemon) == wanted
        for envelope_id in ids:
            await become(daemon.url, envelope_id, c_2="done")
        assert all(late.items(envelope_id) for envelope_id in ids)
    assert "archived envelopes are put back" in daemon.log


@pytest.mark.slow
async def test_they_wait_while_the_archive_is_away(daemon: Daemon, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "archive", tmp_path / "elsewhere"
    async with OldConsumer(daemon.back, "c_1"):
        (envelope_id,) = await put_all(daemon, 0, 1)
        await become(daemon.url, envelope_id, c_1="done")
        await eventually_archived(daemon, place, 1)
    await forget_the_newest(daemon)
    place.rename(elsewhere)
    add_late_ones(daemon.url)
    reading = asyncio.create_task(read_all(daemon, 2))
    await eventually(lambda: "archived envelopes can't be put back" in daemon.log, "the broker tells of it")
    assert not reading.done(), "nothing is passed"
    elsewhere.rename(place)
    async with asyncio.timeout(60):
        assert await reading == [[0, "a"], [0, "b"]]


async def forget_the_newest(daemon: Daemon) -> None:
    """Start the broker anew: what it has sealed within the last second it reads in memory, also if that is archived."""
    await asyncio.to_thread(daemon.restart)


async def eventually_archived(daemon: Daemon, folder: Path, envelopes: int) -> None:
    """Archive so many envelopes: what is done is noted a little later."""
    found = 0
    while found < envelopes:
        found += (await asyncio.to_thread(archive, daemon.url, folder)).envelopes
