"""Items of msgpack as rows: turns maps into rows, many at once, and explains the fault of each other item."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from spark_worker.items.columns import CORRUPT, DATA, INDEX, ROW
from xbus.errors import ProtocolError
from xbus.rpc.codec import Key, Value, unpack


def arrow_fields(wanted: StructType) -> dict[str, pa.DataType]:
    """Give the types of the fields of rows, without ``_corrupt``."""
    return {f.name: to_arrow_type(f.dataType, timezone="UTC") for f in wanted if f.name != CORRUPT}


def with_rows(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Add a column ``_row`` to batches of ``_index`` and ``data``; only faulty items keep ``data``.

    Args:
        schema: of the items; without fields the batches are left as they are.
    """
    if not schema.fields:
        yield from batches
        return
    fields = arrow_fields(schema)
    demanded = [field.name for field in schema if not field.nullable]
    for batch in batches:
        data = batch.column(DATA)
        rows = rows_of(data.to_pylist(), fields)
        lacking = [rows.field(name).is_null() for name in demanded]
        is_wrong = reduce(pc.or_, lacking, rows.field(CORRUPT).is_valid())
        left = pc.if_else(is_wrong, data, pa.scalar(None, pa.binary()))
        yield pa.RecordBatch.from_arrays([batch.column(INDEX), left, rows], names=[INDEX, DATA, ROW])


def rows_of(items: list[bytes], fields: Mapping[str, pa.DataType]) -> pa.StructArray:
    """Make the rows of items: all at once if all fit, otherwise one by one to find those that don't."""
    maps: list[dict[Key, Value]] = []
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


def _map_of(item: bytes) -> tuple[dict[Key, Value], str | None]:
    try:
        row = unpack(item)
    except ProtocolError as error:
        return {}, f"it is not msgpack: {error.cause}"
    return (row, None) if isinstance(row, dict) else ({}, f"it is a {type(row).__name__} of msgpack, not a map")


def _one_by_one(
    maps: list[dict[Key, Value]], causes: list[str | None], fields: Mapping[str, pa.DataType]
) -> list[pa.Array]:
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


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Make an array of values of one type; dates, times and decimals are text on the bus, see ``packing.packer``."""
    if holds(kind, _is_text_on_the_bus):
        values = [_of_bus(value, kind) for value in values]
    return pa.array(values, kind)


def holds(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Check whether a type is wanted, or contains a wanted one."""
    return is_wanted(kind) or any(holds(part, is_wanted) for part in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [field.type for field in kind]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_list(kind) else []


def _is_text_on_the_bus(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind))


def _of_bus(value: object, kind: pa.DataType) -> object:
    """Read the texts in a value that mean a date, time or decimal; keep values of other kinds."""
    if isinstance(value, str):
        return _of_text(value, kind) if _is_text_on_the_bus(kind) else value
    if isinstance(value, list) and pa.types.is_list(kind):
        return [_of_bus(each, kind.value_type) for each in value]
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {_of_bus(key, kind.key_type): _of_bus(each, kind.item_type) for key, each in value.items()}
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {field.name: _of_bus(value.get(field.name), field.type) for field in kind}
    return value


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
