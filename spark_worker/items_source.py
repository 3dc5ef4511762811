"""What the data sources of items have in common, wherever the items lie."""

import json
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from spark_worker.batches import Items, batches
from spark_worker.columns import DATA, INDEX, ROW
from spark_worker.json_rows import row_type, with_rows


def columns_of(early: StructType) -> StructType:
    """The columns of items as they are read: ``_index``, ``data``, and ``_row`` where rows are made of them.

    Args:
        early: as of ``Format.early``.
    """
    rows = [StructField(ROW, row_type(early))] if early.fields else []
    return StructType([StructField(INDEX, LongType()), StructField(DATA, BinaryType()), *rows])


class ItemsSource(DataSource):
    """Items; which of their columns are made rows of at once is told by the option ``early``, as JSON of Spark's."""

    def schema(self) -> StructType:
        return columns_of(self.early)

    @property
    def early(self) -> StructType:
        """As of ``Format.early``."""
        return StructType.fromJson(json.loads(self.options["early"]))


class ItemsReader(DataSourceReader):
    """Reads the items of such a source.

    Args:
        early: as of ``Format.early``.
    """

    def __init__(self, early: StructType) -> None:
        self._early = early

    def made(self, segments: Iterator[Items]) -> Iterator[pa.RecordBatch]:
        """Segments as batches of the columns that the source has."""
        return with_rows(batches(segments), self._early)
