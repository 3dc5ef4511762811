"""Reads the items of an event for Spark: executors read the journal, or a spool file."""

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_worker.items.source import Early, ItemsReader, ItemsSource
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.log.planning import SegmentRange

JOURNAL = "xbus_items"
"""The name of the scan of an event's items, also in Spark's plans."""


def read_ranges(spark: SparkSession, url: str, ranges: list[SegmentRange], early: Early) -> DataFrame:
    """Let the executors read the items of an event, a partition for each range.

    Args:
        spark: the session.
        url: the journal's database, where the executors reach it.
        ranges: in order.
        early: the rows to make of items at once, see ``Format.early``.

    Returns:
        ``_index``, ``data`` and, with ``early``, ``_row``.
    """
    if not ranges:
        return spark.createDataFrame([], early.columns)
    spark.dataSource.register(JournalItems)
    packed = b64encode(pickle.dumps(ranges)).decode()
    # As it is called url, Spark hides the value, which may hold a password, wherever it shows options.
    return spark.read.format(JOURNAL).options(url=url, ranges=packed, early=early.option).load()


@dataclass
class Range(InputPartition):
    """A partition of the journal."""

    value: SegmentRange


class JournalItems(ItemsSource):
    """Ranges of the journal as rows."""

    @classmethod
    def name(cls) -> str:
        return JOURNAL

    def reader(self, schema: Any) -> DataSourceReader:
        ranges = pickle.loads(b64decode(self.options["ranges"]))  # noqa: S301 - `read_ranges` made it
        return RangeReader(self.options["url"], ranges, self.early)


class RangeReader(ItemsReader):
    """Reads a range by a connection of its own."""

    def __init__(self, url: str, ranges: list[SegmentRange], early: Early) -> None:
        super().__init__(early)
        self._url = url
        self._ranges = ranges

    def partitions(self) -> list[InputPartition]:
        return [Range(wanted) for wanted in self._ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with open_reader(self._url) as reader:
            yield from self.made(reader.segments(partition.value))
