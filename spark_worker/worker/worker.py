"""The worker: a recipient like any other, which has Spark do its work."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import pyarrow as pa

from spark_worker.items.columns import DATA, INDEX
from spark_worker.items.errors import ClusterUnreachable
from spark_worker.worker.job import SparkJobs
from spark_worker.worker.running import LOOK_SECONDS, Runner
from spark_worker.worker.spool import Spool, spool_path
from xbus.errors import Failed
from xbus.recipient import Batch, Envelope, Event, Item
from xbus.recipient.bulk import BulkWorker, Handover, Made

_SPOOL = "spool"

Answer = TypeVar("Answer")


class SparkWorker(BulkWorker):
    """Hands large events over to Spark by their ranges, and small ones by a spool; both come to the same.

    Args:
        jobs: do the work on an event.
        runner: where it is done.
        folder: for spools.
        min_bulk_items: an event of so many items is read from the journal by Spark itself.
        on_gone: called when the cluster is gone, so that the worker leaves the bus until it is back.
        look_seconds: how soon it notices that an envelope is to be rolled back.
    """

    name = "spark_worker"

    def __init__(
        self,
        jobs: SparkJobs,
        runner: Runner,
        folder: Path,
        min_bulk_items: int,
        on_gone: Callable[[], None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.min_bulk_items = min_bulk_items
        self._jobs = jobs
        self._runner = runner
        self._folder = folder
        self._on_gone = on_gone
        self._look_seconds = look_seconds

    async def make_output(self, handover: Handover, progress: Callable[[float], None]) -> Made:
        """Have the executors read the event and write its output."""
        tag = f"xbus-attempt:{handover.attempt_id}"
        return await self._run(tag, lambda: self._jobs.make(handover), progress)

    def on_event_start(self, event: Event) -> None:
        """Begin an event that comes by the ordinary path."""
        spool = event.state[_SPOOL] = Spool(spool_path(self._folder, event.id))
        event.envelope.state.setdefault(_SPOOL, []).append(spool)

    def on_batch(self, event: Event, batch: Batch) -> list[Item]:
        """Keep the items; what comes of them is known when all are here."""
        event.state[_SPOOL].add(batch)
        return []

    async def on_event_end(self, event: Event) -> list[Item]:
        """Have Spark make the output of all items."""
        spool: Spool = event.state[_SPOOL]
        spool.finish()
        ids = UUID(event.envelope.id), UUID(event.id)

        def tell(fraction: float) -> None:
            event.progress(int(100 * fraction), 100)

        def answer() -> pa.Table:
            return self._jobs.answer(spool, *ids, event.type_name, event.headers, event.partition_key)

        job = self._run(f"xbus-event:{uuid4()}", answer, tell)
        table = await _unless_stopped(asyncio.create_task(job), event.envelope, self._look_seconds)
        spool.remove()
        # Heartbeats go on meanwhile.
        return await asyncio.to_thread(items_of, table, spool.origins.several)

    def commit(self, envelope: Envelope) -> None:
        """Remove the files of the envelope; its results are durable."""
        self.rollback(envelope)

    def rollback(self, envelope: Envelope) -> None:
        """Remove the envelope's spools."""
        for spool in envelope.state.get(_SPOOL, []):
            spool.remove()

    async def _run(self, tag: str, work: Callable[[], Answer], tell: Callable[[float], None]) -> Answer:
        try:
            return await self._runner.run(tag, work, tell)
        except ClusterUnreachable:
            self._on_gone()
            raise


async def _unless_stopped(job: "asyncio.Task[Answer]", envelope: Envelope, look_seconds: float) -> Answer:
    """Wait for the result of a job, and cancel the job if its envelope is to be rolled back.

    Raises:
        Failed: it was.
    """
    while not (await asyncio.wait([job], timeout=look_seconds))[0]:
        if envelope.is_stopped and not job.cancelling():
            job.cancel()
    if job.cancelled():
        raise Failed("the envelope was stopped", code="envelope_stopped")
    return job.result()


def items_of(table: pa.Table, several: dict[int, list[int]]) -> list[Item]:
    """Make items for the bus from rows of ``_index`` and ``data``.

    Args:
        table: the rows.
        several: of indexes that stand for more than one, all that they stand for.
    """
    indexes, datas = table.column(INDEX).to_pylist(), table.column(DATA).to_pylist()
    return [_item(index, data, several) for index, data in zip(indexes, datas, strict=True)]


def _item(index: int | None, data: bytes, several: dict[int, list[int]]) -> Item:
    if index is None:
        return Item.of(data)
    return Item.of(data, several[index]) if index in several else Item(data, index)
