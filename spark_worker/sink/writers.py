"""Writers of envelopes: once by ``df.write``, and for ever by ``df.writeStream``, of the format ``xbus``."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_worker.sink.options import SinkOptions
from spark_worker.sink.sending import send, send_once
from spark_worker.sink.staging import Staged, Staging
from xbus.errors import Failed


class EnvelopeWriter(DataSourceArrowWriter):
    """Sends a DataFrame as one envelope."""

    def __init__(self, options: SinkOptions) -> None:
        Staging(options.staging)  # reports a bad one before the work
        self._options = options
        # The same for all tasks and for the driver: copies of this instance do their work.
        self._folder = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        options = self._options
        return Staging(options.staging).stage(iterator, [self._folder], options.inline_bytes, partition, "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Send what all tasks staged."""
        staging = Staging(self._options.staging)
        try:
            send(self._options, staging, [part for part in messages if isinstance(part, Staged)], self._options.key)
        finally:
            staging.remove(self._folder)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the staged rows, also those of tasks that sent no message."""
        Staging(self._options.staging).remove(self._folder)


QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Spark's names for them among the properties of a task."""


class EnvelopeStreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch as one envelope, under a key made of query and batch.

    A query that is restarted does its last batch again, with the same rows. If that was sealed, the bus answers with
    the first receipt, and nothing comes twice.

    Args:
        options: the options of the sink.
    """

    def __init__(self, options: SinkOptions) -> None:
        Staging(options.staging)  # reports a bad one before the work
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY) if context else None
        batch = context.getLocalProperty(BATCH) if context else None
        if context is None or not query or not batch:
            raise Failed("Spark does not say which query and which batch this is", code="query_unknown")
        staging = Staging(self._options.staging)
        return staging.stage(iterator, [query, batch], self._options.inline_bytes, context.partitionId(), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Send what all tasks of a batch staged."""
        staged = [part for part in messages if isinstance(part, Staged)]
        if not staged:
            return
        staging, query = Staging(self._options.staging), staged[0].query
        send_once(self._options, staging, staged, f"spark {query} {batchId}")
        # Of batches before, too: a driver that died may have left some.
        for name in staging.names(query):
            if name.isdigit() and int(name) <= batchId:
                staging.remove(query, name)
        staging.remove_empty(query)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove the staged rows; those of tasks without a message go with the folder, when the batch is done."""
        staging = Staging(self._options.staging)
        for part in messages:
            if isinstance(part, Staged):
                staging.remove_file(part)
