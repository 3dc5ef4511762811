"""Items of JSON as rows, made by Arrow where they are read: at a quarter of what Spark's own parser costs.

Arrow's word counts only where it takes all of many items as they are: objects with values of the declared types. The
others keep their bytes and are left to Spark, which reads them after all, or tells what is wrong with each.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_worker.columns import CORRUPT, DATA, INDEX, ROW

RUN_ITEMS = 1_000
"""Where one item of a batch is left to Spark, so many go with it."""

_KINDS: Mapping[DataType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    DoubleType(): pa.float64(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    StringType(): pa.string(),
}
"""The types that Arrow and Spark read alike."""


def readable(schema: StructType) -> bool:
    """Whether items of a schema can be made rows here."""
    return all(field.dataType in _KINDS for field in schema)


def row_type(schema: StructType) -> StructType:
    """The row of an item as Spark's parser makes it: what was declared, but all may be null, and ``_corrupt``."""
    fields = [StructField(field.name, field.dataType) for field in schema]
    return StructType([*fields, StructField(CORRUPT, StringType())])


def columns_with_rows(early: StructType) -> StructType:
    """The columns of items as they are read: ``_index``, ``data``, and ``_row`` where rows are made of them."""
    rows = [StructField(ROW, row_type(early))] if early.fields else []
    return StructType([StructField(INDEX, LongType()), StructField(DATA, BinaryType()), *rows])


def parsed_type(text: str) -> StructType:
    """What ``StructType.json`` wrote."""
    return StructType.fromJson(json.loads(text))


def with_rows(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches of ``_index`` and ``data`` with a column ``_row``; where that is not null, ``data`` is.

    Args:
        schema: of the items, ``readable``; without fields the batches are left as they are.
    """
    if not schema.fields:
        yield from batches
        return
    reader = _Reader(schema)
    for batch in batches:
        data = batch.column(DATA)
        rows = reader.rows(data)
        left = pc.if_else(pc.is_null(rows), data, pa.scalar(None, pa.binary()))
        yield pa.RecordBatch.from_arrays([batch.column(INDEX), left, rows], names=[INDEX, DATA, ROW])


class _Reader:
    def __init__(self, schema: StructType) -> None:
        self._fields = pa.schema([pa.field(field.name, _KINDS[field.dataType]) for field in schema])
        self._demanded = [field.name for field in schema if not field.nullable]
        self._kind = pa.struct([*self._fields, pa.field(CORRUPT, pa.string())])
        self._parsing = pyarrow.json.ParseOptions(
            explicit_schema=self._fields, newlines_in_values=True, unexpected_field_behavior="ignore"
        )

    def rows(self, data: pa.Array) -> pa.Array:
        """For each item its row, or null where it is left to Spark."""
        if (rows := self._taken(data)) is not None:
            return rows
        runs = [data.slice(start, RUN_ITEMS) for start in range(0, len(data), RUN_ITEMS)]
        taken = [self._taken(run) if len(runs) > 1 else None for run in runs]
        return pa.concat_arrays(
            [pa.nulls(len(run), self._kind) if rows is None else rows for run, rows in zip(runs, taken, strict=True)]
        )

    def _taken(self, data: pa.Array) -> pa.StructArray | None:
        """The rows of items; None where one of them is not certainly what Spark would make of it."""
        if not _are_objects(data):
            return None
        everything = pa.ListArray.from_arrays(pa.array([0, len(data)], pa.int32()), data)
        text = pc.binary_join(everything, b"\n")[0].as_buffer()
        try:
            table = pyarrow.json.read_json(pa.BufferReader(text), _in_one(text.size), self._parsing)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(data):
            return None  # an item holds two objects
        columns = [column.combine_chunks() for column in table.columns]
        if not all(map(_is_sound, columns)) or any(table[name].null_count for name in self._demanded):
            return None
        return pa.StructArray.from_arrays([*columns, pa.nulls(len(data), pa.string())], fields=list(self._kind))


def _in_one(size: int) -> pyarrow.json.ReadOptions:
    return pyarrow.json.ReadOptions(use_threads=False, block_size=size + 1)


def _are_objects(data: pa.Array) -> bool:
    """Whether items begin and end like objects, in sound UTF-8.

    Then an object never reaches from one item into the next: between ``}`` and ``{`` JSON allows for no line's end but
    outside of all objects. So if there are as many objects as items, each item is one.
    """
    try:
        texts = data.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _is_sound(column: pa.Array) -> bool:
    """Whether numbers are some: what stands for NaN and infinity is not the same to all."""
    return not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() is not False
