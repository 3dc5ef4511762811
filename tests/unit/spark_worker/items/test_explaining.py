"""Why an item does not fit its schema, in words."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from spark_worker.items.explaining import explain_text
from spark_worker.items.rows import JsonRows

HINT = "values are msgpack on the bus: leave --format out"

SCHEMA = StructType(
    [
        StructField("id", IntegerType(), nullable=False),
        StructField("price", DoubleType()),
        StructField("name", StringType()),
        StructField("open", BooleanType()),
        StructField("day", DateType()),
        StructField("tags", ArrayType(StringType())),
    ]
)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (b"\xff", f"the item is not JSON: it is not text in UTF-8 ({HINT})"),
        (b'{"id": 1', "the item is not JSON: Expecting ',' delimiter: line 1 column 9 (char 8)"),
        (b"[1]", "the item is a list, not an object"),
        (b"null", "the item is null, not an object"),
        (b'"a"', "the item is a text, not an object"),
        (b"{}", "field id is missing"),
        (b'{"id": "x"}', 'field id: "x" is not an int'),
        (b'{"id": 3000000000}', "field id: 3000000000 is not an int"),
        (b'{"id": 1, "price": "dear"}', 'field price: "dear" is not a double'),
        (b'{"id": 1, "open": 1}', "field open: 1 is not a boolean"),
        (b'{"id": 1, "day": "soon"}', 'field day: "soon" is not a date'),
        (b'{"id": 1, "tags": {}}', "field tags: {} is not an array<string>"),
        (b'{"id": 1, "tags": ["a", 2]}', "field tags[1]: 2 is not a string"),
        (b'{"id": 1, "id": 2}', 'the item names "id" twice'),
    ],
)
def test_the_first_fault_is_named(item: bytes, said: str) -> None:
    assert JsonRows(SCHEMA).explain(item) == said


def test_a_long_value_is_cut() -> None:
    said = JsonRows(SCHEMA).explain(b'{"id": "' + b"x" * 500 + b'"}')

    assert said is not None
    assert len(said) < 120
    assert "..." in said


def test_where_nothing_is_wrong_nothing_is_said() -> None:
    assert JsonRows(SCHEMA).explain(b'{"id": 1}') is None


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (b' {"id": 1}', "the item is JSON, not msgpack: say so by --format json"),
        (b"1,abc", "the item is text, not msgpack: say so by --format csv"),
        (b"\x81\xa2id\xa1x", ""),
        (b"\xc1", ""),
        (b"", ""),
    ],
)
def test_text_that_is_no_msgpack_names_the_option(item: bytes, said: str) -> None:
    assert explain_text(item) == said
