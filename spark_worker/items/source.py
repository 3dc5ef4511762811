"""The base of all data sources of items, wherever the items lie."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from spark_worker.items.batches import Items, batches
from spark_worker.items.columns import DATA, INDEX, ROW
from spark_worker.items.rows import JsonRows, MsgpackRows, RowMaker, row_type, with_rows

_READERS: Mapping[str, Callable[[StructType], RowMaker]] = {"json": JsonRows, "msgpack": MsgpackRows}


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
        """Columns of items as they are read: ``_index``, ``data``, and ``_row`` if rows are made of them."""
        rows = [StructField(ROW, row_type(self.schema))] if self.schema.fields else []
        return StructType([StructField(INDEX, LongType()), StructField(DATA, BinaryType()), *rows])

    def made(self, items: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make batches of these columns from batches of ``_index`` and ``data``."""
        yield from with_rows(items, _READERS[self.items_format](self.schema)) if self.schema.fields else items


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
