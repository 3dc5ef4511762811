"""A disk gets full while the Spark worker makes an output: nothing of it counts, operators see what is full and where,
and as soon as there is room the output is made and delivered once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.disks import MEBIBYTE, SmallDisk, on_small_disk, small_disk
from tests.support.processes import Process
from tests.support.serving import serving
from tests.support.spark import SECONDS
from tests.support.spark_worker import GRAPH, Keeps, StartWorker, emit, grown, order, registered, told
from tests.support.waiting import answered, eventually
from xbus import model
from xbus.broker.journal.bulk.side_files import folder_of
from xbus.broker.journal.database.connection import reading

pytestmark = pytest.mark.slow

SMALL, LARGE = 24 * MEBIBYTE, 512 * MEBIBYTE
ITEMS = [order(number, 5_000 * "c") for number in range(400)]
"""Each becomes one of 100,000 bytes: more than the small disk takes. They are several segments, so there are tasks that
end well before one fails."""

MADE: list[tuple[list[int], Any]] = [([number], grown(number)) for number in range(len(ITEMS))]

AGAIN_SOON = {"back": {"first_delay": 0.5, "longest_delay": 0.5, "attempts": 1000}}
"""And as often as it takes: attempts fail until the test has looked at what is told of them."""


@pytest.fixture
def disk(database_url: str) -> Iterator[SmallDisk]:
    """Where outputs are written, and nothing else: so the broker can tell of what became of them."""
    folder = folder_of(sa.make_url(database_url))
    place = on_small_disk(database_url, SMALL, "bulk_segment") if folder is None else small_disk(folder, SMALL)
    with place as disk:
        yield disk


async def test_where_outputs_are_written(
    database_url: str, disk: SmallDisk, start_daemon: StartDaemon, start_worker: StartWorker
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url, AGAIN_SOON)
    async with delivered_when_larger(disk, daemon, start_worker(daemon, "rules:grown")) as envelope_id:
        await failed_twice(daemon, "journal_unavailable", "has room", str(disk.folder), "pg_tblspc/")
        await told(daemon, "No space left on device", "envelope", "show", envelope_id)
    if "sqlite" in database_url:
        await eventually(lambda: disk.used == 0, "all files are gone", SECONDS)


async def test_all_of_the_database(postgres_url: str, start_daemon: StartDaemon, start_worker: StartWorker) -> None:
    """Nobody can write down that the output failed, until there is room."""
    add_bus(postgres_url, GRAPH)
    with on_small_disk(postgres_url, SMALL) as disk:
        daemon = start_daemon(postgres_url, AGAIN_SOON)
        worker = start_worker(daemon, "rules:grown")
        async with delivered_when_larger(disk, daemon, worker):
            await eventually(lambda: "output_failed" in worker.text, "an attempt has failed", SECONDS)
        assert "No space left on device" in failed(daemon)[0][1]
        daemon.stop()


async def test_where_spark_keeps_what_it_moves(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, tmp_path: Path
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, AGAIN_SOON)
    with small_disk(tmp_path / "scratch", SMALL) as disk:
        worker = start_worker(daemon, "rules:moved", "--conf", f"spark.local.dir={disk.folder}")
        async with delivered_when_larger(disk, daemon, worker) as envelope_id:
            await failed_twice(daemon, "disk_full", "make room", str(disk.folder))
            await told(daemon, str(disk.folder), "envelope", "show", envelope_id)
        await eventually(lambda: disk.used == 0, "nothing is kept of a job that is over", SECONDS)
        assert worker.stop(SECONDS) == 0


@asynccontextmanager
async def delivered_when_larger(disk: SmallDisk, daemon: Daemon, worker: Process) -> AsyncIterator[str]:
    """Emit what makes the disk full, which counts for nothing within the block; then there is room."""
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        envelope_id = await emit(daemon, ITEMS)
        yield envelope_id
        assert store.committed == {}
        disk.resize(LARGE)
        await eventually(lambda: envelope_id in store.committed, "it was delivered", SECONDS)
        await answered(lambda: nothing_is_left_over(daemon), "nothing is left of what failed", SECONDS)
    assert store.committed == {envelope_id: MADE}


async def failed_twice(daemon: Daemon, code: str, next_step: str, *places: str) -> None:
    """Wait until attempts failed; each tells what is wrong, in which of these places, and what to do about it."""

    async def twice() -> bool:
        return len(await asyncio.to_thread(failed, daemon)) >= 2

    await answered(twice, "two attempts have failed", SECONDS)
    for told_code, cause in await asyncio.to_thread(failed, daemon):
        assert told_code == code
        assert "No space left on device" in cause
        assert any(place in cause for place in places), cause
        assert next_step in cause


def failed(daemon: Daemon) -> list[tuple[str, str]]:
    """Code and cause of the attempts that failed, the oldest first."""
    attempt = model.bulk_attempt.c
    wanted = sa.select(attempt.code, attempt.cause).where(attempt.state == "failed").order_by(attempt.started_at)
    with reading(daemon.url) as connection:
        return [(row.code, row.cause) for row in connection.execute(wanted)]


async def nothing_is_left_over(daemon: Daemon) -> bool:
    """Whether no segments of attempts that failed are there; the consumer in this process goes on meanwhile."""
    return await asyncio.to_thread(left_over, daemon) == 0


def left_over(daemon: Daemon) -> int:
    """How many segments there are of attempts that failed."""
    attempt, segment = model.bulk_attempt.c, model.bulk_segment.c
    wanted = sa.select(sa.func.count()).where(segment.attempt_id == attempt.id, attempt.state != "ready")
    with reading(daemon.url) as connection:
        return int(connection.execute(wanted).scalar_one())
