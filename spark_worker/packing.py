"""msgpack as columns: maps to rows and rows to maps, in Arrow batches in the executors."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StructType

from spark_worker.columns import CORRUPT
from xbus.errors import ProtocolError
from xbus.rpc.codec import unpack


def unpacked(data: Column, wanted: StructType) -> Column:
    """The rows in maps of msgpack.

    Args:
        data: bytes.
        wanted: the fields of the rows; among them ``_corrupt``, which tells what is wrong with a map.
    """
    fields = {f.name: to_arrow_type(f.dataType, timezone="UTC") for f in wanted if f.name != CORRUPT}

    @arrow_udf(wanted)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def rows(items: pa.Array) -> pa.Array:
        return rows_of(items.to_pylist(), fields)

    column: Column = rows(data)
    return column


def packed(row: Column) -> Column:
    """The maps of msgpack that rows make, as bytes."""

    @arrow_udf(BinaryType())  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def items(rows: pa.Array) -> pa.Array:
        return pa.array(list(map(packer(), rows.to_pylist())), pa.binary())

    column: Column = items(row)
    return column


def packer() -> Callable[[Any], bytes]:
    """What packs a row; dates, times and decimals as text, as the bus takes them."""
    pack: Callable[[Any], bytes] = msgpack.Packer(default=_as_text).pack
    return pack


def _as_text(value: object) -> str:
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"msgpack has no way to write a {type(value).__name__}")


def rows_of(items: list[bytes], fields: dict[str, pa.DataType]) -> pa.StructArray:
    """The rows of items: all at once where all fit, else one by one to find those that don't."""
    maps: list[dict[str, Any]] = []
    causes: list[str | None] = []
    for item in items:
        row, cause = _map_of(item)
        maps.append(row)
        causes.append(cause)
    try:
        columns = [_array([row.get(name) for row in maps], kind) for name, kind in fields.items()]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        columns = _one_by_one(maps, causes, fields)
    names = [*fields, CORRUPT]
    return pa.StructArray.from_arrays([*columns, pa.array(causes, pa.string())], names)


def _map_of(item: bytes) -> tuple[dict[str, Any], str | None]:
    try:
        row = unpack(item)
    except ProtocolError as error:
        return {}, f"it is not msgpack: {error.cause}"
    return (row, None) if isinstance(row, dict) else ({}, f"it is a {type(row).__name__} of msgpack, not a map")


def _one_by_one(maps: list[dict[str, Any]], causes: list[str | None], fields: dict[str, pa.DataType]) -> list[pa.Array]:
    columns = []
    for name, kind in fields.items():
        values = []
        for place, row in enumerate(maps):
            value = row.get(name)
            try:
                _array([value], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                causes[place] = causes[place] or f"field {name}: {str(value)[:60]!r} is not of the type {kind}"
                value = None
            values.append(value)
        columns.append(_array(values, kind))
    return columns


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values of one type; dates, times and decimals are text on the bus, as ``_as_text`` writes them."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        values = [_of_text(value, kind) if isinstance(value, str) else value for value in values]
    return pa.array(values, kind)


def _of_text(text: str, kind: pa.DataType) -> date | Decimal:
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo or kind.tz is None else moment.replace(tzinfo=UTC)
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text} is no decimal") from error
