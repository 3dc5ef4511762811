"""Columns of Spark that read and write msgpack, in Arrow batches in the executors."""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, StructType

from spark_worker.items.msgpack_rows import arrow_fields, holds, rows_of


def unpacked(data: Column, wanted: StructType) -> Column:
    """Unpack the rows in maps of msgpack.

    Args:
        data: bytes.
        wanted: the fields of the rows; among them ``_corrupt``, which tells what is wrong with a map.
    """
    fields = arrow_fields(wanted)

    @arrow_udf(wanted)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def rows(items: pa.Array) -> pa.Array:
        return rows_of(items.to_pylist(), fields)

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
    as_maps = {"maps_as_pydicts": "strict"} if holds(rows.type, pa.types.is_map) else {}
    return pa.array(list(map(packer(), rows.to_pylist(**as_maps))), pa.binary())


def packer() -> Callable[[object], bytes]:
    """Make the function that packs a row; dates, times and decimals as text, as the bus takes them."""
    pack: Callable[[object], bytes] = msgpack.Packer(default=_as_text).pack
    return pack


def _as_text(value: object) -> str:
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"msgpack has no way to write a {type(value).__name__}")
