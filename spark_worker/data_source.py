"""The format ``xbus`` of Spark: the log as a table and as a stream, and a sink that sends envelopes.

Spark makes an instance wherever it needs one, in the driver and in executors; so all but the options is read when it is
asked for, and each side imports only what it needs.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from spark_worker.sink.writers import EnvelopeStreamWriter, EnvelopeWriter
    from spark_worker.source.batch import LogBatchReader
    from spark_worker.source.stream import LogStreamReader


class XbusDataSource(DataSource):
    """The data source behind Spark's ``format("xbus")``."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return "xbus"

    def schema(self) -> str:
        """Give the schema of all columns, or of those that option ``columns`` names."""
        from spark_worker.source.columns import ddl
        from spark_worker.source.options import chosen_columns

        return ddl(chosen_columns(self.options))

    def reader(self, schema: StructType) -> "LogBatchReader":
        """Make a reader that reads once."""
        from spark_worker.source.batch import LogBatchReader
        from spark_worker.source.options import batch_options
        from spark_worker.source.schema import columns_of, to_arrow

        return LogBatchReader(batch_options(self.options, columns_of(schema)), to_arrow(schema))

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802
        """Make a reader that goes on reading."""
        from spark_worker.source.options import stream_options
        from spark_worker.source.schema import columns_of, to_arrow
        from spark_worker.source.stream import LogStreamReader

        return LogStreamReader(stream_options(self.options, columns_of(schema)), to_arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "EnvelopeWriter":
        """Make a writer that sends a DataFrame as an envelope."""
        from spark_worker.sink.options import batch_sink_options
        from spark_worker.sink.writers import EnvelopeWriter

        return EnvelopeWriter(batch_sink_options(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "EnvelopeStreamWriter":  # noqa: N802
        """Make a writer that sends each micro-batch as an envelope."""
        from spark_worker.sink.options import stream_sink_options
        from spark_worker.sink.writers import EnvelopeStreamWriter

        return EnvelopeStreamWriter(stream_sink_options(self.options, schema))
