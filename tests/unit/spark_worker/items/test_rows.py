"""Rows of many items: Arrow and Python read JSON alike, and each faulty item is found among the others."""

import json
import random
import time
from decimal import Decimal
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_worker.items.kinds import DoesNotFit
from spark_worker.items.rows import RUN_ITEMS, JsonRows, MsgpackRows, RowMaker, is_early, with_rows
from spark_worker.items.scalars import json_variant_text, variant_text
from tests.support.json_items import UNCERTAIN

SCHEMA = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("small", IntegerType()),
        StructField("name", StringType()),
        StructField("rate", DoubleType()),
        StructField("is_paid", BooleanType()),
        StructField("day", DateType()),
        StructField("price", DecimalType(6, 2)),
        StructField("lines", ArrayType(StructType([StructField("n", IntegerType(), nullable=False)]))),
    ]
)
SOUND = b'{"id": 1, "name": "a", "rate": 0.5}'
NO_JSON = b"no json"
SIGNS = '{}[]":,.-+eE019 \n\ttfnu\\é/'


def read(reader: RowMaker, *items: bytes) -> list[dict[str, Any]]:
    indexes = pa.array(range(len(items)), pa.int64())
    given = pa.RecordBatch.from_arrays([indexes, pa.array(items, pa.binary())], names=["_index", "data"])
    (made,) = with_rows([given], reader)
    assert made.column("_index").equals(indexes)
    rows: list[dict[str, Any]] = made["_row"].to_pylist()
    for row, data, item in zip(rows, made["data"].to_pylist(), items, strict=True):
        assert data == (None if row["_corrupt"] is None else item), "the bytes are kept where something is wrong"
    return rows


def test_arrow_and_python_read_alike() -> None:
    reader = JsonRows(SCHEMA)
    items = [*map(_sound, range(200)), *_damaged(1_000), *UNCERTAIN]

    alone = [read(reader, item)[0] for item in items]
    by_python = [read(reader, item, NO_JSON)[0] for item in items]

    assert list(map(repr, alone)) == list(map(repr, by_python))
    wrong = sum(row["_corrupt"] is not None for row in alone)
    assert 150 < wrong < len(items) - 250, "some are sound, some are not"


@pytest.mark.parametrize(
    "items",
    [
        [b'{"x": [1,', b'{"id": 1}]}', b'{"id": 2}{"id": 3}'],
        [b'{"id": 1}{"id": 2}', b""],
        [b'{"x": {"y":', b'{"id": 1}}}', b'{"id": 2}{"id": 3}'],
        [b'{"name": "}', b'{"}', b'{"id": 1}{"id": 2}'],
    ],
)
def test_items_that_together_make_as_many_objects_are_refused(items: list[bytes]) -> None:
    assert [row["_corrupt"] for row in read(JsonRows(SCHEMA), *items)] == [item.decode() for item in items]


@pytest.mark.parametrize("run_items", [2, RUN_ITEMS])
def test_a_faulty_item_is_refused_alone(run_items: int) -> None:
    rows = read(JsonRows(SCHEMA, run_items), SOUND, SOUND, SOUND, NO_JSON, SOUND)

    assert [row["_corrupt"] for row in rows] == [None, None, None, "no json", None]
    assert [row["name"] for row in rows] == ["a", "a", "a", None, "a"]


@pytest.mark.parametrize(
    "text", ['{"id": 1, "id": 2}', '{"id": 1, "lines": [{"n": 1, "n": 2}]}', '{"id": 1, "x": {"a": 1, "a": 1}}']
)
def test_a_doubled_name_is_refused_where_python_reads(text: str) -> None:
    first, _ = read(JsonRows(SCHEMA), text.encode(), NO_JSON)

    assert first["_corrupt"] == text
    assert "twice" in str(JsonRows(SCHEMA).explain(text.encode()))


def test_long_items_and_names_of_numbers_are_rows() -> None:
    long, named = read(
        JsonRows(SCHEMA), b'{"name": "%s", "id": 1}' % (b"n" * 40_000), b'{"name": "Inf, NaN or [Infinity]", "id": 2}'
    )

    assert (len(long["name"]), named["id"]) == (40_000, 2)


def test_no_items_are_no_rows() -> None:
    assert read(JsonRows(SCHEMA)) == read(MsgpackRows(SCHEMA)) == []


def test_what_is_no_map_is_told() -> None:
    reader = MsgpackRows(SCHEMA)
    items = [b"\xc1", msgpack.packb([1]), msgpack.packb({"id": msgpack.ExtType(5, b"x")})]

    causes = [row["_corrupt"] for row in read(reader, *items)]

    assert [cause[:14] for cause in causes] == ["it is not msgp", "it is a list o", "it is not msgp"]
    assert [reader.explain(item) for item in items] == causes


def test_all_of_a_column_that_can_be_read_is() -> None:
    values = [{"id": 1}, {"name": "a"}, {"id": "x"}, {"id": 2, "name": "b"}, {"id": 3, "name": 7}]

    rows = read(MsgpackRows(SCHEMA), *map(msgpack.packb, values))

    assert [row["name"] for row in rows] == [None, "a", None, "b", None]
    assert [row["_corrupt"] for row in rows] == [
        None,
        "field id is missing",
        'field id: "x" is not a bigint',
        None,
        "field name: 7 is not a string",
    ]


@pytest.mark.parametrize("kind", [DateType(), TimestampType(), DecimalType(9, 2), ArrayType(IntegerType())], ids=str)
def test_other_types_are_read_in_columns(kind: DataType) -> None:
    assert not is_early(StructType([StructField("x", kind)]))
    assert is_early(StructType(SCHEMA.fields[:5]))


def _sound(seed: int) -> bytes:
    dice = random.Random(seed)
    values: dict[str, Any] = {
        "id": dice.choice([0, -1, 2**63 - 1, -(2**63), dice.randrange(10**9)]),
        "small": dice.choice([None, 0, 2**31 - 1, -(2**31)]),
        "name": dice.choice(["", "é\u2028", "\x00", 'a"b\\c/\n', "😀", "x" * 300]),
        "rate": dice.choice([0.1, -0.0, 1e-320, 1.7976931348623157e308, 5, dice.random() * 10 ** dice.randint(-9, 9)]),
        "is_paid": dice.choice([True, False, None]),
        "day": dice.choice(["2026-01-31", "0001-01-01", "9999-12-31", None]),
        "price": dice.choice([1, 1.5, "12.50", "-0.01", 9999, None]),
        "lines": dice.choice([[{"n": 1, "deep": [1, "x", None]}], [], None, [None]]),
    }
    left = dice.sample(sorted(values), dice.randint(1, len(values)))
    return json.dumps({"id": 7} | {name: values[name] for name in left}, ensure_ascii=dice.random() < 0.5).encode()


def _damaged(number: int) -> list[bytes]:
    """Items with a sign or two changed, left out or put in."""
    dice = random.Random(2)
    found = []
    for seed in range(number):
        text = _sound(seed).decode()
        for _ in range(dice.randint(1, 2)):
            place = dice.randrange(1, len(text))
            text = text[:place] + dice.choice(["", dice.choice(SIGNS)]) + text[place + dice.randint(0, 1) :]
        found.append(text.encode())
    return found


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-1", "1.5", "1.50", "100.0", "1e2", "1E400", "-0.0", '"é\ud800"', "null", "true", "[]", "{}"),
        *('{"a": [1, {"b": "\\u0000"}], "c": 0.1}', "[1.10, 0.25]", "9" * 38, "9" * 39, f'"{"9" * 39}"'),
        *("[" * 900 + "]" * 900, "1e-7", "123456789.123456789", "0.00001"),
    ],
)
def test_json_of_a_variant_is_written_at_once_as_it_is_digit_by_digit(text: str) -> None:
    value = json.loads(text, parse_float=Decimal)
    assert json_variant_text(value) == variant_text(value)


@pytest.mark.parametrize(
    "item",
    [
        *(b'{"a": 1}', b' {"a": 1}', b'{"a": 1}\n', b'{"a": 1}{"a": 2}', b'{"a": 1, "a": 2}', b"[1]", b"1", b"", b"{"),
        *(b'{"a": "\xff"}', b'{"a": NaN}', b'{"a": {"b": 1, "b": 2}}', b'{"a": 1} x', b'{"a": 1e999999999999999999}'),
    ],
)
def test_items_that_are_decoded_at_once_are_those_that_are_decoded_alone(item: bytes) -> None:
    reader = JsonRows(StructType([StructField("a", MapType(StringType(), LongType()))]))
    others = [b'{"a": {"x": 1}}', b"{}"]
    together = reader.decode_all([*others, item])
    try:
        alone = reader.decode(item)
    except DoesNotFit:
        assert together is None
    else:
        assert together in (None, [*map(reader.decode, others), alone])
    assert reader.decode_all(others) == [{"a": {"x": 1}}, {}]


def test_an_item_of_many_names_costs_no_more_than_its_size() -> None:
    names = ",".join(f'"n{number}":1' for number in range(20_000))
    begun = time.process_time()
    assert '"n19999" twice' in str(JsonRows(SCHEMA).explain(f'{{{names},"n19999":2}}'.encode()))
    assert time.process_time() - begun < 3
