"""Columns of Spark that read items and write msgpack, in Arrow batches in the executors."""

import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, StructType, VariantVal

from spark_worker.items.rows import RowMaker
from spark_worker.items.scalars import as_interval


def unpacked(data: Column, wanted: StructType, reader: RowMaker) -> Column:
    """Read the rows of items.

    Args:
        data: bytes.
        wanted: the type of the rows.
        reader: makes them.
    """

    @arrow_udf(wanted)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def rows(items: pa.Array) -> pa.Array:
        return reader.rows(items)

    column: Column = rows(data)
    return column


def packed(row: Column) -> Column:
    """Pack rows as maps of msgpack, in bytes."""

    @arrow_udf(BinaryType())  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def items(rows: pa.Array) -> pa.Array:
        return items_of(rows)

    column: Column = items(row)
    return column


def items_of(rows: pa.StructArray) -> pa.Array:
    """Pack rows as maps, in bytes.

    Raises:
        TypeError, KeyError: a value of a row can't be written.
    """
    # Without it maps are lists of pairs; with it all takes ten times as long.
    as_maps = {"maps_as_pydicts": "strict"} if _has(pa.types.is_map, rows.type) else {}
    values = rows.to_pylist(**as_maps)
    if _has(_is_variant, rows.type):
        values = [_with_variants(value, rows.type) for value in values]
    return pa.array(list(map(packer(), values)), pa.binary())


def _has(is_wanted: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Check whether a type is wanted, or contains a wanted one."""
    return is_wanted(kind) or any(_has(is_wanted, part) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [field.type for field in kind]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_list(kind) else []


def _is_variant(kind: pa.DataType) -> bool:
    """Check whether a type is a VARIANT, which Spark marks in the field of its metadata."""
    fields = list(kind) if pa.types.is_struct(kind) else []
    return any((field.metadata or {}).get(b"variant") == b"true" for field in fields)


def _with_variants(value: Any, kind: pa.DataType) -> object:
    """Replace each VARIANT in a value by the value that it holds."""
    if value is None:
        return None
    if _is_variant(kind):
        return json.loads(VariantVal(value["value"], value["metadata"]).toJson(), parse_float=_float_or_text)
    if pa.types.is_struct(kind):
        return {field.name: _with_variants(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: _with_variants(each, kind.item_type) for key, each in value.items()}
    return [_with_variants(each, kind.value_type) for each in value] if pa.types.is_list(kind) else value


def _float_or_text(number: str) -> float | str:
    """Read a number; one with more digits than a float stays text, like any decimal."""
    found = float(number)
    return found if Decimal(repr(found)) == Decimal(number) else number


def packer() -> Callable[[object], bytes]:
    """Make the function that packs a row; dates, times, intervals and decimals as text, as ``rules`` read them."""
    pack: Callable[[object], bytes] = msgpack.Packer(default=_as_text).pack
    return pack


def _as_text(value: object) -> str:
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return as_interval(value)
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"msgpack has no way to write a {type(value).__name__}")
