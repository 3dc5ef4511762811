"""Reading once: ``spark.read.format("xbus")``."""

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_worker.source.arrow import arrow_batches
from spark_worker.source.journal import TypeLog
from spark_worker.source.options import BatchOptions
from spark_worker.source.reading import Wanted, read_range
from xbus.broker.journal.archive.reading import ArchivedFile


class LogBatchReader(DataSourceReader):
    """Reads the events of a type between two places in the log.

    The plan of the read decides its end, once.

    Args:
        options: the options of the source.
        schema: of the batches.
    """

    def __init__(self, options: BatchOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the parts that are read side by side."""
        options = self._options
        log = TypeLog(options)
        until = log.end(options.end)
        after = min(log.begin(options.begin), until)
        if options.fail_on_data_loss:
            log.check_kept(after, until)
        return [InputPartition(wanted) for wanted in log.plan(after, until, os.cpu_count() or 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the items of a part; None means that the log has no parts, and gives nothing."""
        return read_batches(partition.value, self._schema)


def read_batches(wanted: Wanted | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the items of a part as Arrow batches."""
    if wanted is None:
        return iter(())
    if isinstance(wanted.part, ArchivedFile):
        return _archived(wanted.part, schema)
    return arrow_batches(read_range(wanted, wanted.part), schema)


def _archived(file: ArchivedFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # Each process that plans or reads begins with its imports: what reads Parquet is seldom needed.
    from spark_worker.archive.reading import read_items

    for batch in read_items(file, schema.names):
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
