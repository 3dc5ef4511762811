"""Writes the output of an event from Spark: executors write it into the journal part by part."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from spark_worker.items.pieces import OutputLimits, pieces
from xbus.broker.journal.bulk.part_writer import PartSummary, open_part

FORMAT = "xbus_parts"


def write_parts(made: DataFrame, url: str, attempt_id: UUID, limits: OutputLimits, folder: Path) -> list[PartSummary]:
    """Write rows of ``_index`` and ``data`` as the output of an attempt, each partition as a part of that number.

    Args:
        made: partition by partition in order.
        url: the journal's database, where the executors reach it.
        attempt_id: whose output it is.
        limits: what the items may be.
        folder: of this machine, for what the parts say of themselves.

    Returns:
        The written segments, part by part in order.
    """
    made.sparkSession.dataSource.register(JournalParts)
    summary = folder / f"{attempt_id}.parts"
    options = {"url": url, "attempt": str(attempt_id), "summary": str(summary)}
    most = {"bytes": str(limits.max_item_bytes), "items": str(limits.items)}
    made.write.format(FORMAT).options(**options, **most).mode("append").save()
    # This worker's driver wrote it, in a folder of its own.
    parts: list[PartSummary] = pickle.loads(summary.read_bytes())  # noqa: S301
    summary.unlink()
    return sorted(parts, key=lambda part: part.part)


@dataclass
class Written(WriterCommitMessage):
    """The totals that a task wrote."""

    summary: PartSummary


class JournalParts(DataSource):
    """The output of an attempt."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        options = self.options
        limits = OutputLimits(int(options["bytes"]), int(options["items"]))
        return PartsWriter(options["url"], UUID(options["attempt"]), limits, Path(options["summary"]))


class PartsWriter(DataSourceArrowWriter):
    """Writes each partition by a connection of its own, in one transaction."""

    def __init__(self, url: str, attempt_id: UUID, limits: OutputLimits, summary: Path) -> None:
        self._url = url
        self._attempt_id = attempt_id
        self._limits = limits
        self._summary = summary

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        with open_part(self._url, self._attempt_id, task.partitionId()) as part:
            for piece in pieces(iterator, self._limits):
                part.write(piece.items, piece.data, piece.first_index, piece.sources)
        return Written(part.written)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        # Spark calls this in another process of the driver's machine; a file is the way from there to the worker.
        parts = [message.summary for message in messages if isinstance(message, Written)]
        self._summary.write_bytes(pickle.dumps(parts))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the output counts only after the worker's report, and the broker removes it otherwise."""
