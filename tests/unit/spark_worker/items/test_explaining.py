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

from spark_worker.items.explaining import explain_json, explain_lack, explain_text

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
    ],
)
def test_the_first_fault_is_named(item: bytes, said: str) -> None:
    assert explain_json(item, SCHEMA) == said


def test_a_long_value_is_cut() -> None:
    said = explain_json(b'{"id": "' + b"x" * 500 + b'"}', SCHEMA)

    assert len(said) < 120
    assert "..." in said


def test_where_no_fault_is_seen_the_schema_is_named() -> None:
    assert explain_json(b'{"id": 1}', SCHEMA).startswith("the item does not fit the schema struct<id:int,")


@pytest.mark.parametrize("row", [{}, {"id": None, "name": "a"}], ids=["not there", "null"])
def test_a_map_that_lacks_a_field_is_told_which(row: dict[str, object]) -> None:
    assert explain_lack(row, SCHEMA) == "field id is missing"


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
