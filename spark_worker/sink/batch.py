"""Writing once: ``df.write.format("xbus")``."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_worker.sink.options import SinkOptions
from spark_worker.sink.sending import send
from spark_worker.sink.staging import Staged, Staging


class EnvelopeWriter(DataSourceArrowWriter):
    """Sends a DataFrame as one envelope.

    Args:
        options: the options of the sink.
    """

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
