"""Items of JSON are made rows where that is safe, and left to Spark where it is not."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from spark_worker.items.json_rows import RUN_ITEMS, readable, with_rows
from tests.support.json_items import UNCERTAIN

SCHEMA = StructType(
    [StructField("id", LongType()), StructField("name", StringType()), StructField("rate", DoubleType())]
)
SOUND = b'{"id": 1, "name": "a", "rate": 0.5}'


def read(*items: bytes, schema: StructType = SCHEMA, run_items: int = RUN_ITEMS) -> pa.RecordBatch:
    indexes = pa.array(range(len(items)), pa.int64())
    given = pa.RecordBatch.from_arrays([indexes, pa.array(items, pa.binary())], names=["_index", "data"])
    (made,) = with_rows([given], schema, run_items)
    assert made.column("_index").equals(indexes)
    for row, data, item in zip(made["_row"].to_pylist(), made["data"].to_pylist(), items, strict=True):
        assert (row is None) == (data is not None), "a row, or the bytes"
        assert data in (None, item)
    return made


def rows(*items: bytes, schema: StructType = SCHEMA, run_items: int = RUN_ITEMS) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = read(*items, schema=schema, run_items=run_items)["_row"].to_pylist()
    return found


def test_objects_of_the_declared_types_are_rows() -> None:
    made = rows(SOUND, b'{"rate": -2, "other": {"x": [1]}, "id": -0, "name": "\\u00e9\\n"}', b"{}", b'{"id": null}')

    assert made == [
        {"id": 1, "name": "a", "rate": 0.5, "_corrupt": None},
        {"id": 0, "name": "é\n", "rate": -2.0, "_corrupt": None},
        {"id": None, "name": None, "rate": None, "_corrupt": None},
        {"id": None, "name": None, "rate": None, "_corrupt": None},
    ]


@pytest.mark.parametrize("item", UNCERTAIN)
def test_what_is_not_certain_is_left_to_spark(item: bytes) -> None:
    assert rows(item) == [None]
    assert rows(SOUND, item) == [None, None]


@pytest.mark.parametrize(
    "items",
    [
        [b'{"x": [1,', b'{"id": 1}]}', b'{"id": 2}{"id": 3}'],
        [b'{"id": 1}{"id": 2}', b""],
        [b'{"x": {"y":', b'{"id": 1}}}', b'{"id": 2}{"id": 3}'],
        [b'{"name": "}', b'{"}', b'{"id": 1}{"id": 2}'],
    ],
)
def test_items_that_together_make_as_many_objects_are_left(items: list[bytes]) -> None:
    assert rows(*items) == [None] * len(items)


def test_with_an_item_only_its_run_is_left() -> None:
    made = rows(SOUND, SOUND, SOUND, b"no json", SOUND, run_items=2)

    assert [row is None for row in made] == [False, False, True, True, False]


def test_an_item_that_lacks_what_must_be_there_is_left() -> None:
    schema = StructType([StructField("id", LongType(), nullable=False)])

    assert rows(b"{}", schema=schema) == [None]
    assert rows(b'{"id": 1}', schema=schema) == [{"id": 1, "_corrupt": None}]


def test_long_items_and_names_of_numbers_are_rows() -> None:
    made = rows(b'{"name": "%s", "id": 1}' % (b"n" * 40_000), b'{"name": "Inf, NaN or [Infinity]", "x": [Infinity]}')

    assert [row is None for row in made] == [False, False]


def test_no_items_are_no_rows() -> None:
    assert rows() == []


def test_without_columns_batches_stay_as_they_are() -> None:
    given = pa.RecordBatch.from_pydict({"_index": [0], "data": [b"x"]})

    assert list(with_rows([given], StructType([]))) == [given]


@pytest.mark.parametrize("ddl", ["date", "timestamp", "decimal(9,2)", "float", "binary", "array<int>", "varchar(3)"])
def test_other_types_are_left_as_a_whole(ddl: str) -> None:
    kind = StructType.fromJson({"type": "struct", "fields": [_field(ddl)]})

    assert not readable(kind)
    assert readable(SCHEMA)


def _field(ddl: str) -> dict[str, Any]:
    kind: Any = {"type": "array", "elementType": "integer", "containsNull": True} if ddl == "array<int>" else ddl
    return {"name": "x", "type": kind, "nullable": True, "metadata": {}}


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "rate": st.none() | st.floats(allow_nan=False, allow_infinity=False).map(lambda rate: rate or 0.0),
        "other": st.recursive(st.none() | st.text(max_size=3), lambda x: st.lists(x, max_size=2), max_leaves=3),
    },
)


@given(st.lists(VALUES, min_size=1, max_size=8), st.booleans())
def test_what_json_writes_is_read_alike(values: list[dict[str, Any]], ascii_only: bool) -> None:
    made = rows(*[json.dumps(value, ensure_ascii=ascii_only).encode() for value in values])

    names = ("id", "name", "rate")
    assert made == [{**{name: value.get(name) for name in names}, "_corrupt": None} for value in values]
