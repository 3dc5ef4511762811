"""The base of all data sources of items, wherever the items lie."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from spark_worker.items import json_rows, msgpack_rows
from spark_worker.items.batches import Items, batches
from spark_worker.items.columns import DATA, INDEX, ROW

_MAKERS = {"json": json_rows.with_rows, "msgpack": msgpack_rows.with_rows}


@dataclass(frozen=True, slots=True)
class Early:
    """The rows that are made of items already where they are read.

    Args:
        schema: the columns of a row; empty where none are made.
        items_format: what the items are written in.
    """

    schema: StructType
    items_format: str = ""

    @classmethod
    def of_option(cls, text: str) -> "Early":
        """Read the text that ``option`` has written."""
        found = json.loads(text)
        return cls(StructType.fromJson(found["schema"]), found["items_format"])

    @property
    def option(self) -> str:
        """All of it as a text."""
        return json.dumps({"schema": self.schema.jsonValue(), "items_format": self.items_format})

    @property
    def columns(self) -> StructType:
        """Those of items as they are read: ``_index``, ``data``, and ``_row`` where rows are made of them."""
        rows = [StructField(ROW, json_rows.row_type(self.schema))] if self.schema.fields else []
        return StructType([StructField(INDEX, LongType()), StructField(DATA, BinaryType()), *rows])

    def made(self, items: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make batches of these columns from batches of ``_index`` and ``data``."""
        yield from _MAKERS[self.items_format](items, self.schema) if self.schema.fields else items


class ItemsSource(DataSource):
    """A source of items; its option ``early`` says which rows it makes of them at once."""

    def schema(self) -> StructType:
        return self.early.columns

    @property
    def early(self) -> Early:
        """As of ``Format.early``."""
        return Early.of_option(self.options["early"])


class ItemsReader(DataSourceReader):
    """Reads the items of such a source.

    Args:
        early: as of ``Format.early``.
    """

    def __init__(self, early: Early) -> None:
        self._early = early

    def made(self, segments: Iterator[Items]) -> Iterator[pa.RecordBatch]:
        """Make batches of the source's columns from segments."""
        return self._early.made(batches(segments))
