"""What Arrow takes of JSON where it is read is what Spark's own parser makes of it: of sound items, and of
damaged ones."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_worker.items.formats import make_format
from spark_worker.items.json_rows import with_rows
from tests.support.json_items import UNCERTAIN

SCHEMA = "id BIGINT NOT NULL, small INT, name STRING, rate DOUBLE, is_paid BOOLEAN"
SIGNS = '{}[]":,.-+eE019 \n\ttfnu\\é/'
NAMES = ("id", "small", "name", "rate", "is_paid", "lines", "deep")


def test_both_read_alike(spark: SparkSession) -> None:
    items = [*map(_sound, range(200)), *_damaged(2_000), *UNCERTAIN]
    items_format = make_format("json", SCHEMA)
    early = items_format.early
    assert early.schema.fields, "else nothing is compared"
    # Each item alone: beside a damaged one all would be left to Spark.
    read = [next(with_rows([_batch([item], number)], early.schema)) for number, item in enumerate(items)]
    taken = [batch for batch in read if batch["_row"].null_count == 0]
    assert len(taken) > 300, "sound ones, and damaged ones that are still JSON"

    rows = pa.Table.from_batches(read).combine_chunks()
    by_arrow = items_format.parse(spark.createDataFrame(rows, early.columns))  # type: ignore[call-overload,unused-ignore]
    by_spark = items_format.parse(spark.createDataFrame(pa.Table.from_batches([_batch(items)])))

    assert _values(by_arrow) == _values(by_spark)


def _batch(items: Sequence[bytes], first: int = 0) -> pa.RecordBatch:
    indexes = pa.array(range(first, first + len(items)), pa.int64())
    return pa.RecordBatch.from_arrays([indexes, pa.array(items, pa.binary())], names=["_index", "data"])


def _values(parsed: DataFrame) -> list[tuple[Any, ...]]:
    rows = parsed.drop("_data").orderBy("_index").collect()
    return [tuple(repr(value) for value in row) for row in rows]


def _sound(seed: int) -> bytes:
    dice = random.Random(seed)
    values: dict[str, Any] = {
        "id": dice.choice([0, -1, 2**63 - 1, -(2**63), dice.randrange(10**9)]),
        "small": dice.choice([None, 0, 2**31 - 1, -(2**31)]),
        "name": dice.choice(["", "é\u2028", "\x00", 'a"b\\c/\n', "😀", "x" * 300]),
        "rate": dice.choice([0.1, -0.0, 1e-320, 1.7976931348623157e308, 5, dice.random() * 10 ** dice.randint(-9, 9)]),
        "is_paid": dice.choice([True, False, None]),
        "lines": [{"deep": [1, "x", None]}],
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
