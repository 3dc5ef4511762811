"""Rows of all types come through Spark, and are read alike where the items are and in columns."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_worker.items.formats import make_format

SCHEMA = "id BIGINT NOT NULL, small INT, name STRING, rate DOUBLE, is_paid BOOLEAN"
BATCH_ITEMS = 7

OTHER = [
    *(b"", b"\xc0", b"\xc1", b"\x80", b"text", b'{"id": 1}', b"\x81\xa2id", b"\x91" * 2_000),
    msgpack.packb({"id": 1}) * 2,
    msgpack.packb([1]),
    msgpack.packb({b"id": 1}),
    msgpack.packb({1: 1, "id": 1}),
    msgpack.packb({"id": 1, "more": msgpack.ExtType(5, b"x")}),
    msgpack.packb({"id": 1, "at": msgpack.Timestamp(1)}),
]
"""What is no map, or none of the usual kind."""

EVERY_TYPE: list[tuple[str, Any, object]] = [
    ("BOOLEAN", True, 1.5),
    ("TINYINT", 7, 128),
    ("SMALLINT", 7, 19.5),
    ("INT", 7, [1]),
    ("BIGINT", 7, 2**63),
    ("FLOAT", 0.5, 1e300),
    ("DOUBLE", 0.5, 2**53 + 1),
    ("DECIMAL(6,2)", "12.50", "1.005"),
    ("STRING", "a", 7),
    ("STRING COLLATE UTF8_LCASE", "a", {}),
    ("BINARY", "YQ==", 7),
    ("DATE", "2026-01-31", "2026-01-31T08:30:00"),
    ("TIMESTAMP", "2026-01-31T08:30:00Z", 1_767_225_600),
    ("TIMESTAMP_NTZ", "2026-01-31T08:30:00", "2026-01-31T08:30:00Z"),
    ("TIME", "08:30:00", 1),
    ("INTERVAL DAY TO SECOND", "INTERVAL '1 02:03:04' DAY TO SECOND", 1),
    ("VARIANT", {"a": [1, 2.5, "x", None]}, None),
    ("VOID", None, 1),
    ("ARRAY<INT>", [1, None], [1, 2.7]),
    ("ARRAY<VARIANT>", [1, {"a": 1.5}], 7),
    ("MAP<STRING,INT>", {"a": 1}, {"a": 1.5}),
    ("STRUCT<a: INT NOT NULL, b: DATE>", {"a": 1, "b": "2026-01-31"}, {"b": None}),
]
"""Each type with a value that fits it, and one that does not."""


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_both_read_alike(spark: SparkSession, form: str) -> None:
    if form == "json":
        pack: Callable[[dict[str, Any]], bytes] = lambda value: json.dumps(value).encode()  # noqa: E731
        items = [pack(_values_of(seed)) for seed in range(300)] + [_torn(seed, pack) for seed in range(700)]
    else:
        pack = msgpack.packb
        items = [
            *(pack(_values_of(seed)) for seed in range(300)),
            *(_torn(seed, pack) for seed in range(1_500)),
            *OTHER,
        ]
    items_format = make_format(form, SCHEMA)
    early = items_format.early
    assert early.schema.fields, "else nothing is compared"
    given = [_batch(items[start : start + BATCH_ITEMS], start) for start in range(0, len(items), BATCH_ITEMS)]

    rows = pa.Table.from_batches(early.made(iter(given))).combine_chunks()
    where_they_are = items_format.parse(spark.createDataFrame(rows, early.columns))  # type: ignore[call-overload,unused-ignore]
    in_columns = items_format.parse(spark.createDataFrame(pa.Table.from_batches([_batch(items, 0)])))

    read = _values(where_they_are)
    assert read == _values(in_columns)
    wrong = [row for row in read if row[-2] != "None"]
    assert 200 < len(wrong) < len(read) - 300, "some are sound, some are not"


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_every_type_comes_through_spark(spark: SparkSession, form: str) -> None:
    fitting = {f"c{number}": value for number, (_, value, _) in enumerate(EVERY_TYPE)}
    faulty = [{**fitting, f"c{number}": value} for number, (_, _, value) in enumerate(EVERY_TYPE)]
    schema = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(EVERY_TYPE))
    if form == "msgpack":
        binary = next(number for number, (kind, _, _) in enumerate(EVERY_TYPE) if kind == "BINARY")
        rows = [{**row, f"c{binary}": b"a"} if row[f"c{binary}"] == "YQ==" else row for row in (fitting, *faulty)]
        items = list(map(msgpack.packb, rows))
    else:
        items = [json.dumps(row).encode() for row in (fitting, *faulty)]
    items_format = make_format(form, schema)

    parsed = items_format.parse(spark.createDataFrame(pa.Table.from_batches([_batch(items, 0)])))
    first, *others = parsed.orderBy("_index").collect()

    assert first["_corrupt"] is None
    assert all(first[name] is not None or value is None for name, value in fitting.items())
    for number, (row, (kind, _, value)) in enumerate(zip(others, EVERY_TYPE, strict=True)):
        assert (row["_corrupt"] is None) == (value is None), kind
        if value is not None:
            assert items_format.explain(bytes(row["_data"]), row["_corrupt"]).startswith(f"field c{number}"), kind
    again = items_format.parse(items_format.encode(parsed.where("_index = 0").drop("_corrupt", "_data")))
    (written,) = again.select(*fitting, "_corrupt").collect()
    assert str(written) == str(parsed.where("_index = 0").select(*fitting, "_corrupt").collect()[0])


def test_other_types_are_left_to_the_columns(spark: SparkSession) -> None:
    assert not make_format("msgpack", "id INT, day DATE").early.schema.fields


def _batch(items: Sequence[bytes], first: int) -> pa.RecordBatch:
    indexes = pa.array(range(first, first + len(items)), pa.int64())
    return pa.RecordBatch.from_arrays([indexes, pa.array(items, pa.binary())], names=["_index", "data"])


def _values(parsed: DataFrame) -> list[tuple[str, ...]]:
    """All columns of all items; the bytes, by which it is told what is wrong, of those with which something is."""
    rows = parsed.orderBy("_index").collect()
    return [tuple(repr(value) for value in (*row[:-1], row[-2] is not None and bytes(row[-1]))) for row in rows]


def _values_of(seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    values: dict[str, Any] = {
        "id": dice.choice([0, -1, 2**63 - 1, -(2**63), dice.randrange(10**9)]),
        "small": dice.choice([None, 0, 2**31 - 1, -(2**31)]),
        "name": dice.choice([None, "", "é\u2028", "\x00", "x" * 300]),
        "rate": dice.choice([None, 0.1, -0.0, float("inf"), 5, 1e-320, dice.random()]),
        "is_paid": dice.choice([True, False, None]),
        "lines": [{"deep": [1, "x", None]}],
    }
    left = dice.sample(sorted(values), dice.randint(1, len(values)))
    return {"id": 7} | {name: values[name] for name in left}


def _torn(seed: int, pack: Callable[[dict[str, Any]], bytes]) -> bytes:
    """An item with a value of another kind, or with bytes changed, left out or put in."""
    dice = random.Random(seed)
    if seed % 3 == 0:
        name = dice.choice(["id", "small", "name", "rate", "is_paid"])
        value: Any = dice.choice([2**63, 2**31, 1.5, float("nan"), "7", True, [], {}, None, -1])
        return pack({**_values_of(seed), name: value})
    data = pack(_values_of(seed))
    for _ in range(dice.randint(1, 2)):
        place = dice.randrange(len(data))
        data = data[:place] + dice.choice([b"", dice.randbytes(1)]) + data[place + dice.randint(0, 1) :]
    return data
