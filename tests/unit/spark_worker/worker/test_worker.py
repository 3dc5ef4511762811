"""The worker's own part, with jobs that only pretend."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from spark_worker.items.batches import SCHEMA
from spark_worker.items.errors import ClusterUnreachable
from spark_worker.worker.job import SparkJobs
from spark_worker.worker.running import Runner
from spark_worker.worker.spool import Spool
from spark_worker.worker.worker import SparkWorker
from xbus.errors import Failed
from xbus.recipient import Batch, Envelope, Event
from xbus.recipient.bulk import Handover, Made


class PretendedJobs:
    """Answers each item of a spool as it is."""

    def __init__(self) -> None:
        self.spooled: list[int] = []

    def answer(self, spool: Spool, envelope_id: UUID, event_id: UUID, type_name: str, *_: object) -> pa.Table:
        self.spooled.append(spool.items)
        rows = {"_index": pa.array([3, 0, None], pa.int64()), "data": pa.array([b"a", b"b", b"c"], pa.binary())}
        return pa.table(rows, schema=SCHEMA)

    def make(self, handover: Handover) -> Made:
        return Made(handover.items, 1, b"hash")


class PretendedRunner:
    """Runs jobs at once, or never."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False
        self.was_cancelled = False

    async def run(self, tag: str, work: Callable[[], Any], tell: Callable[[float], None]) -> Any:
        tell(0.5)
        if self.error:
            raise self.error
        try:
            while self.hangs:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return work()


class Bench:
    """A worker with all that it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = PretendedJobs()
        self.runner = PretendedRunner()
        self.gone = 0
        jobs, runner = cast(SparkJobs, self.jobs), cast(Runner, self.runner)
        self.worker = SparkWorker(jobs, runner, folder, 100, self.on_gone, look_seconds=0.01)
        self.event = Event(str(uuid4()), "orders", Envelope(str(uuid4())))

    def on_gone(self) -> None:
        self.gone += 1

    def give(self, *batches: Batch) -> None:
        self.worker.on_event_start(self.event)
        for batch in batches:
            assert self.worker.on_batch(self.event, batch) == []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def handover() -> Handover:
    return Handover(uuid4(), uuid4(), "orders", uuid4(), "spark", uuid4(), False, 500)


async def test_items_are_kept_in_a_file_until_all_are_here(bench: Bench) -> None:
    bench.give(Batch([b"x", b"y"], 0), Batch([b"z"], 2, [[3, 4]]))

    items = await bench.worker.on_event_end(bench.event)

    assert bench.jobs.spooled == [3]
    assert [(item.data, item.indices) for item in items] == [(b"a", [3, 4]), (b"b", [0]), (b"c", [])]
    assert list(bench.folder.iterdir()) == []
    assert bench.event.told == (50, 100)


async def test_what_is_rolled_back_leaves_no_file(bench: Bench) -> None:
    bench.give(Batch([b"x"], 0))
    assert len(list(bench.folder.iterdir())) == 1

    bench.worker.rollback(bench.event.envelope)
    bench.worker.rollback(Envelope(str(uuid4())))

    assert list(bench.folder.iterdir()) == []


async def test_a_stop_ends_the_job(bench: Bench) -> None:
    bench.give(Batch([b"x"], 0))
    bench.runner.hangs = True
    bench.event.envelope.is_stopped = True

    with pytest.raises(Failed, match="the envelope was stopped"):
        await bench.worker.on_event_end(bench.event)

    assert bench.runner.was_cancelled
    bench.worker.rollback(bench.event.envelope)


async def test_an_output_is_made(bench: Bench) -> None:
    told: list[float] = []

    made = await bench.worker.make_output(handover(), told.append)

    assert made == Made(500, 1, b"hash")
    assert told == [0.5]


async def test_the_worker_leaves_the_bus_when_the_cluster_is_gone(bench: Bench) -> None:
    bench.runner.error = ClusterUnreachable("the Spark cluster is gone")

    with pytest.raises(ClusterUnreachable):
        await bench.worker.make_output(handover(), lambda _: None)

    assert bench.gone == 1


def test_it_announces_what_it_was_told(bench: Bench) -> None:
    assert bench.worker.min_bulk_items == 100
