"""msgpack as columns, without Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_worker.items.msgpack_rows import rows_of, with_rows
from spark_worker.items.packing import items_of, packer

DAY = pa.date32()
TIME = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
PRICE = pa.decimal128(10, 2)


def read(kind: pa.DataType, *values: Any) -> tuple[list[Any], list[Any]]:
    """Values of a field, and what is wrong with their items."""
    rows = rows_of([packer()({"x": value}) for value in values], {"x": kind})
    return rows.field("x").to_pylist(), rows.field("_corrupt").to_pylist()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (DAY, date(2026, 1, 31)),
        (TIME, datetime(2026, 1, 31, 8, 30, tzinfo=UTC)),
        (LOCAL, datetime(2026, 1, 31, 8, 30)),  # noqa: DTZ001
        (PRICE, Decimal("12.50")),
    ],
    ids=str,
)
def test_what_is_written_as_text_is_read_from_text(kind: pa.DataType, value: Any) -> None:
    assert read(kind, value, None) == ([value, None], [None, None])


def test_a_time_without_an_offset_is_of_utc() -> None:
    assert read(TIME, "2026-01-31T08:30:00")[0] == [datetime(2026, 1, 31, 8, 30, tzinfo=UTC)]


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

    rows = rows_of(items_of(given).to_pylist(), {"x": kind})

    assert rows.field("_corrupt").to_pylist() == [None, None]
    assert rows.field("x").equals(given.field("x"))


def test_a_map_is_written_as_a_map() -> None:
    rows = pa.array([{"x": {"a": 1}}], pa.struct([("x", pa.map_(pa.string(), pa.int32()))]))

    assert [msgpack.unpackb(item) for item in items_of(rows).to_pylist()] == [{"x": {"a": 1}}]


def test_what_lies_in_others_and_does_not_fit_is_told() -> None:
    kind = pa.list_(DAY)

    values, causes = read(kind, ["2026-01-31"], ["soon"])

    assert values == [[date(2026, 1, 31)], None]
    assert causes == [None, f"field x: \"['soon']\" is not of the type {kind}"]


@pytest.mark.parametrize("kind", [DAY, TIME, PRICE], ids=str)
def test_other_text_does_not_fit(kind: pa.DataType) -> None:
    good = {DAY: "2026-01-31", TIME: "2026-01-31", PRICE: "1"}[kind]

    values, causes = read(kind, good, "soon", good)

    assert [value is None for value in values] == [False, True, False]
    assert causes == [None, f"field x: 'soon' is not of the type {kind}", None]


def test_what_is_no_map_is_told() -> None:
    rows = rows_of([b"\xc1", msgpack.packb([1])], {"x": DAY})

    assert [cause[:14] for cause in rows.field("_corrupt").to_pylist()] == ["it is not msgp", "it is a list o"]


def test_the_bytes_are_left_where_something_is_wrong() -> None:
    """They are what it is told by."""
    schema = StructType([StructField("id", LongType(), nullable=False), StructField("name", StringType())])
    values: list[Any] = [{"id": 1}, {"name": "a"}, {"id": "x"}, {"id": 2, "name": "b"}, []]
    items = list(map(msgpack.packb, values))
    given = pa.RecordBatch.from_arrays([pa.array(range(5)), pa.array(items, pa.binary())], names=["_index", "data"])

    (made,) = with_rows([given], schema)

    assert made["data"].to_pylist() == [None, items[1], items[2], None, items[4]]
    assert [row["name"] for row in made["_row"].to_pylist()] == [None, "a", None, "b", None]
    assert [row["_corrupt"] for row in made["_row"].to_pylist()] == [
        *(None, None, "field id: 'x' is not of the type int64", None),
        "it is a list of msgpack, not a map",
    ]
