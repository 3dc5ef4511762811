"""Rows as maps of msgpack, and back."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from spark_worker.items.packing import items_of
from spark_worker.items.rows import MsgpackRows

DAY = pa.date32()
TIME = pa.timestamp("us", "UTC")
PRICE = pa.decimal128(10, 2)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([("day", DAY), ("name", pa.string())]), {"day": date(2026, 1, 31), "name": "a"}),
        (pa.struct([("day", DAY)]), {"day": None}),
        (pa.list_(TIME), [datetime(2026, 1, 31, 8, 30, tzinfo=UTC), None]),
        (pa.map_(pa.string(), PRICE), {"a": Decimal("12.50"), "b": None}),
        (pa.map_(DAY, pa.int32()), {date(2026, 1, 31): 1}),
        (pa.list_(pa.struct([("by_day", pa.map_(DAY, PRICE))])), [{"by_day": {date(2026, 1, 31): Decimal("1.00")}}]),
    ],
    ids=str,
)
def test_what_lies_in_others_comes_back(kind: pa.DataType, value: Any) -> None:
    """Dates, times and decimals within them are text, too, and a map is a map."""
    given = pa.array([{"x": value}, {"x": None}], pa.struct([("x", kind)]))
    reader = MsgpackRows(StructType([StructField("x", from_arrow_type(kind))]))

    rows = reader.rows(items_of(given))

    assert rows.field("_corrupt").to_pylist() == [None, None]
    assert rows.field("x").to_pylist() == given.field("x").to_pylist()


def test_a_map_is_written_as_a_map() -> None:
    rows = pa.array([{"x": {"a": 1}}], pa.struct([("x", pa.map_(pa.string(), pa.int32()))]))

    assert [msgpack.unpackb(item) for item in items_of(rows).to_pylist()] == [{"x": {"a": 1}}]
