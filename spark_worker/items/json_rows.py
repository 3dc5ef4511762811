"""Items of JSON as rows, made by Arrow where they are read: at a quarter of what Spark's own parser costs.

Arrow's word counts only where it takes all of many items as they are: objects with values of the declared types. The
others keep their bytes and are left to Spark, which reads them after all, or tells what is wrong with each.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from spark_worker.items.columns import CORRUPT, DATA, INDEX, ROW

RUN_ITEMS = 1_000
"""Fewer leave less to Spark where one item is left to it, and cost Arrow more calls."""

MOST_SIGNS = 1_000
"""Spark takes numbers of so many signs, and values so deep in others; Arrow takes more."""

MOST_BYTES = 50_000
"""Spark takes names of so many signs; so a longer item is left to it."""

_NUMBERS = bytes(ord("0" if sign in b"0123456789.eE+-" else " ") for sign in range(256))
_NEGATIVE_ZERO = -(2**63)
"""The bits of -0.0, read as an integer."""

_NOT_A_NUMBER = re.compile(rb"[:,\[]\s*-?(?:Inf|NaN)\s*[,\]}]")
"""Texts that Arrow takes for a number and Spark does not; they count also outside of the columns."""

_KINDS: Mapping[DataType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    DoubleType(): pa.float64(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    StringType(): pa.string(),
}
"""The types that Arrow and Spark read alike."""


def readable(schema: StructType) -> bool:
    """Check whether items of a schema can be made rows here."""
    return all(field.dataType in _KINDS for field in schema)


def row_type(schema: StructType) -> StructType:
    """Give the type of an item's row in Spark's parser: all fields may be null, and ``_corrupt`` is added."""
    fields = [StructField(field.name, field.dataType) for field in schema]
    return StructType([*fields, StructField(CORRUPT, StringType())])


def with_rows(
    batches: Iterable[pa.RecordBatch], schema: StructType, run_items: int = RUN_ITEMS
) -> Iterator[pa.RecordBatch]:
    """Add a column ``_row`` to batches of ``_index`` and ``data``; an item has a row, or keeps its data.

    Args:
        schema: of the items, ``readable``; without fields the batches are left as they are.
        run_items: where one item of a batch is left to Spark, so many go with it.
    """
    if not schema.fields:
        yield from batches
        return
    reader = _Reader(schema, run_items)
    for batch in batches:
        data = batch.column(DATA)
        rows = reader.rows(data)
        left = pc.if_else(pc.is_null(rows), data, pa.scalar(None, pa.binary()))
        yield pa.RecordBatch.from_arrays([batch.column(INDEX), left, rows], names=[INDEX, DATA, ROW])


class _Reader:
    def __init__(self, schema: StructType, run_items: int) -> None:
        self._run_items = run_items
        self._fields = pa.schema([pa.field(field.name, _KINDS[field.dataType]) for field in schema])
        self._demanded = [field.name for field in schema if not field.nullable]
        self._kind = pa.struct([*self._fields, pa.field(CORRUPT, pa.string())])
        self._parsing = pyarrow.json.ParseOptions(
            explicit_schema=self._fields, newlines_in_values=True, unexpected_field_behavior="ignore"
        )

    def rows(self, data: pa.Array) -> pa.Array:
        """Make for each item its row, or null if it is left to Spark."""
        if len(data) == 0:
            return pa.nulls(0, self._kind)
        if (rows := self._taken(data)) is not None:
            return rows
        size = self._run_items
        runs = [data.slice(start, size) for start in range(0, len(data), size)]
        taken = [self._taken(run) if len(runs) > 1 else None for run in runs]
        return pa.concat_arrays(
            [pa.nulls(len(run), self._kind) if rows is None else rows for run, rows in zip(runs, taken, strict=True)]
        )

    def _taken(self, data: pa.Array) -> pa.StructArray | None:
        """Make the rows of items; None if one of them is not certainly what Spark would make of it."""
        if not (_are_objects(data) and _within_limits(data)):
            return None
        everything = pa.ListArray.from_arrays(pa.array([0, len(data)], pa.int32()), data)
        text = pc.binary_join(everything, b"\n")[0].as_buffer()
        if _has_no_numbers(text.to_pybytes()):
            return None
        try:
            table = pyarrow.json.read_json(pa.BufferReader(text), _in_one(text.size), self._parsing)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(data):
            return None  # an item has two objects
        columns = [column.combine_chunks() for column in table.columns]
        if not all(map(_is_sound, columns)) or any(table[name].null_count for name in self._demanded):
            return None
        return pa.StructArray.from_arrays([*columns, pa.nulls(len(data), pa.string())], fields=list(self._kind))


def _in_one(size: int) -> pyarrow.json.ReadOptions:
    return pyarrow.json.ReadOptions(use_threads=False, block_size=size + 1)


def _are_objects(data: pa.Array) -> bool:
    """Check whether items begin and end like objects, in sound UTF-8.

    Then no object reaches from one item into the next: between ``}`` and ``{`` JSON allows a line's end only outside of
    all objects. So with as many objects as items, each item is one object.
    """
    try:
        texts = data.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _has_no_numbers(text: bytes) -> bool:
    """Check whether a text has something like a number that Spark does not take, also in a string."""
    return (b"Inf" in text or b"NaN" in text) and _NOT_A_NUMBER.search(text) is not None


def _within_limits(data: pa.Array) -> bool:
    """Check whether all items are within Spark's limits."""
    lengths = pc.binary_length(data)
    longest = pc.max(lengths).as_py()
    if longest <= MOST_SIGNS:
        return True
    return longest <= MOST_BYTES and all(map(_is_plain, data.filter(pc.greater(lengths, MOST_SIGNS)).to_pylist()))


def _is_plain(item: bytes) -> bool:
    depth = item.count(b"{") + item.count(b"[")
    return depth < MOST_SIGNS and b"0" * MOST_SIGNS not in item.translate(_NUMBERS)


def _is_sound(column: pa.Array) -> bool:
    """Check whether numbers are ordinary: parsers differ about NaN, infinity and -0."""
    if not pa.types.is_floating(column.type):
        return True
    are_finite = pc.all(pc.is_finite(column)).as_py() is not False
    return are_finite and pc.any(pc.equal(column.view(pa.int64()), _NEGATIVE_ZERO)).as_py() is not True
