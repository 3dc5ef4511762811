"""msgpack is read alike where the items are and in the columns of Spark: sound items, and damaged ones."""

import random
from collections.abc import Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_worker.items.formats import make_format
from spark_worker.items.msgpack_rows import with_rows

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


def test_both_read_alike(spark: SparkSession) -> None:
    items = [*map(_sound, range(300)), *map(_damaged, range(1_500)), *OTHER]
    items_format = make_format("msgpack", SCHEMA)
    early = items_format.early
    assert early.schema.fields, "else nothing is compared"
    given = [_batch(items[start : start + BATCH_ITEMS], start) for start in range(0, len(items), BATCH_ITEMS)]

    rows = pa.Table.from_batches(with_rows(given, early.schema)).combine_chunks()
    where_they_are = items_format.parse(spark.createDataFrame(rows, early.columns))  # type: ignore[call-overload,unused-ignore]
    in_columns = items_format.parse(spark.createDataFrame(pa.Table.from_batches([_batch(items, 0)])))

    read = _values(where_they_are)
    assert read == _values(in_columns)
    wrong = [row for row in read if row[-2] != "None"]
    assert 300 < len(wrong) < len(read) - 500, "some are sound, some are not"


def test_other_types_are_left_to_the_columns(spark: SparkSession) -> None:
    assert not make_format("msgpack", "id INT, day DATE").early.schema.fields


def _batch(items: Sequence[bytes], first: int) -> pa.RecordBatch:
    indexes = pa.array(range(first, first + len(items)), pa.int64())
    return pa.RecordBatch.from_arrays([indexes, pa.array(items, pa.binary())], names=["_index", "data"])


def _values(parsed: DataFrame) -> list[tuple[str, ...]]:
    """All columns of all items; the bytes, by which it is told what is wrong, of those with which something is."""
    rows = parsed.orderBy("_index").collect()
    return [tuple(repr(value) for value in (*row[:-1], row[-2] is not None and bytes(row[-1]))) for row in rows]


def _sound(seed: int) -> bytes:
    dice = random.Random(seed)
    values: dict[str, Any] = {
        "id": dice.choice([0, -1, 2**63 - 1, -(2**63), dice.randrange(10**9)]),
        "small": dice.choice([None, 0, 2**31 - 1, -(2**31)]),
        "name": dice.choice([None, "", "é\u2028", "\x00", "x" * 300]),
        "rate": dice.choice([None, 0.1, -0.0, float("inf"), 5, 1e-320, dice.random()]),
        "is_paid": dice.choice([True, False, None]),
        "lines": [{"deep": [1, "x", None, b"bytes"]}],
    }
    left = dice.sample(sorted(values), dice.randint(1, len(values)))
    packed: bytes = msgpack.packb({"id": 7} | {name: values[name] for name in left})
    return packed


def _damaged(seed: int) -> bytes:
    """An item with a value of another kind, or with bytes changed, left out or put in."""
    dice = random.Random(seed)
    if seed % 3 == 0:
        name = dice.choice(["id", "small", "name", "rate", "is_paid"])
        value: Any = dice.choice([2**63, 2**31, 1.5, float("nan"), "7", b"7", b"\xff", True, [], {}, None, -1])
        packed: bytes = msgpack.packb({**msgpack.unpackb(_sound(seed)), name: value})
        return packed
    data = _sound(seed)
    for _ in range(dice.randint(1, 2)):
        place = dice.randrange(len(data))
        data = data[:place] + dice.choice([b"", dice.randbytes(1)]) + data[place + dice.randint(0, 1) :]
    return data
