"""One job: the output of an event, made on a session. Blocks; to be called in a thread of its own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from spark_worker.items.columns import DATA, INDEX
from spark_worker.items.pieces import OutputLimits, check_items
from spark_worker.journal.reading import JOURNAL, read_ranges
from spark_worker.journal.writing import write_parts
from spark_worker.spark.master import is_local
from spark_worker.spark.session import master_of
from spark_worker.transform.pipeline import Pipeline
from spark_worker.transform.transforms import Context, References
from spark_worker.worker.spool import SPOOL, Spool, read_spool
from xbus.broker.journal.bulk.part_writer import PartSummary, output_hash
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.planning import GONE, SegmentRange, cut_event, cut_output, read_items
from xbus.errors import JournalError
from xbus.headers import Headers
from xbus.recipient import Refusal
from xbus.recipient.bulk import Handover, Made

PART_ITEMS = 200_000
"""About the items of a partition of a large event. More costs fewer tasks and shows less progress."""

PARTS_PER_CORE = 2

NO_HEADERS: Headers = {}

MOST_ANSWERED_BYTES = 128 * 1024 * 1024
"""The largest output of the ordinary path, which is answered through the broker in one message."""


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """A place where jobs find and leave items.

    Args:
        url: the journal's database, where worker and executors reach it.
        folder: for spools, on this machine.
        max_item_bytes: the largest item that the bus takes.
    """

    url: str = field(repr=False)
    folder: Path
    max_item_bytes: int


class SparkJobs:
    """Makes outputs on a session.

    Args:
        session: Spark.
        pipeline: makes the output of items.
        place: where they are.
        options: for the transform.
    """

    def __init__(self, session: SparkSession, pipeline: Pipeline, place: ItemPlace, options: Mapping[str, str]) -> None:
        self.session = session
        self._pipeline = pipeline
        self._place = place
        self._options = options
        self._references = References()

    def make(self, handover: Handover) -> Made:
        """Read an event from the journal and write what comes of it there.

        Raises:
            Exception: any error; ``failures.of_job`` translates it.
        """
        # Of no items, too, something may be made: their number, for one.
        ranges = self._ranges(handover) if handover.items else []
        about = (handover.headers, handover.partition_key)
        context = self._context(handover.envelope_id, handover.event_id, handover.type_name, *about)
        items = read_ranges(self.session, self._place.url, ranges, self._pipeline.items_format.early)
        places = self._places(handover.event_id) if handover.is_output else handover.items
        limits = OutputLimits(self._place.max_item_bytes, places)
        output = self._pipeline.output(items, context, handover.items, limits.items, JOURNAL)
        parts = write_parts(output.rows, self._place.url, handover.attempt_id, limits, self._place.folder)
        output.check()
        return _made(parts)

    def answer(
        self,
        spool: Spool,
        envelope_id: UUID,
        event_id: UUID,
        type_name: str,
        headers: Headers = NO_HEADERS,
        partition_key: str | None = None,
    ) -> pa.Table:
        """Read an event from a spool.

        Returns:
            ``_index`` and ``data`` of each item of the output, in order.

        Raises:
            Exception: as of ``make``.
        """
        context = self._context(envelope_id, event_id, type_name, headers, partition_key)
        parts = min(self._parts(spool.items), self._cores)
        inline = not is_local(master_of(self.session))
        items = read_spool(self.session, spool, parts, inline, self._pipeline.items_format.early)
        output = self._pipeline.output(items, context, spool.items, spool.origins.end, SPOOL)
        table = output.rows.toArrow()
        output.check()
        if table.nbytes > MOST_ANSWERED_BYTES:
            raise Refusal(
                f"the output takes {table.nbytes} bytes, and {MOST_ANSWERED_BYTES} is the most that goes through the "
                "broker: put the worker at the start of the graph, or lower --min-items"
            )
        named = pc.max(table.column(INDEX)).as_py()
        places = spool.origins.end if named is None or named < spool.origins.end else self._places(event_id)
        for batch in table.to_batches():
            if len(batch):
                check_items(batch.column(DATA), batch.column(INDEX), OutputLimits(self._place.max_item_bytes, places))
        return table

    def _ranges(self, handover: Handover) -> list[SegmentRange]:
        cut = cut_output if handover.is_output else cut_event
        with reading(self._place.url) as connection:
            ranges = cut(connection, handover.source, self._parts(handover.items))
        if (found := sum(each.items for each in ranges)) != handover.items:
            raise JournalError(
                f"{handover.source} has {found} items where {handover.items} were",
                "restore the envelope if it is in the archive; another worker's output is made anew by itself",
                code=GONE,
            )
        return ranges

    def _places(self, event_id: UUID) -> int:
        """Count the event's items: a failure may name any of them, also one that was left out."""
        with reading(self._place.url) as connection:
            return read_items(connection, event_id)

    def _parts(self, items: int) -> int:
        return max(PARTS_PER_CORE * self._cores, math.ceil(items / PART_ITEMS))

    @property
    def _cores(self) -> int:
        return max(1, self.session.sparkContext.defaultParallelism)

    def _context(
        self, envelope_id: UUID, event_id: UUID, type_name: str, headers: Headers, partition_key: str | None
    ) -> Context:
        ids = (envelope_id, event_id, type_name)
        return Context(self.session, *ids, self._options, self._references, headers, partition_key)


def _made(parts: list[PartSummary]) -> Made:
    return Made(
        items=sum(part.items for part in parts),
        data_bytes=sum(part.data_bytes for part in parts),
        hash=output_hash(parts),
    )
