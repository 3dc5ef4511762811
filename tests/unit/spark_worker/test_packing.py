"""msgpack as columns, without Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from spark_worker.packing import packer, rows_of

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


@pytest.mark.parametrize("kind", [DAY, TIME, PRICE], ids=str)
def test_other_text_does_not_fit(kind: pa.DataType) -> None:
    good = {DAY: "2026-01-31", TIME: "2026-01-31", PRICE: "1"}[kind]

    values, causes = read(kind, good, "soon", good)

    assert [value is None for value in values] == [False, True, False]
    assert causes == [None, f"field x: 'soon' is not of the type {kind}", None]


def test_what_is_no_map_is_told() -> None:
    rows = rows_of([b"\xc1", msgpack.packb([1])], {"x": DAY})

    assert [cause[:14] for cause in rows.field("_corrupt").to_pylist()] == ["it is not msgp", "it is a list o"]
