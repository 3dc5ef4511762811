"""Why an item does not fit a schema, in words: for the few that a person will look at. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
)

LONGEST = 60
"""The most characters of a value that a message shows."""

_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


def explain_json(data: bytes, schema: StructType) -> str:
    """Explain why an item is no valid object of JSON.

    Args:
        data: the item.
        schema: the fields that were wanted.
    """
    try:
        value = json.loads(data.decode())
    except UnicodeDecodeError:
        return "the item is not JSON: it is not text in UTF-8 (values are msgpack on the bus: leave --format out)"
    except (ValueError, RecursionError) as error:
        return f"the item is not JSON: {error}"
    if not isinstance(value, dict):
        return f"the item is {_kind(value)}, not an object"
    for field in schema:
        found = value.get(field.name)
        if found is None:
            if not field.nullable:
                return f"field {field.name} is missing"
        elif not _fits(found, field.dataType):
            return f"field {field.name}: {_shown(found)} is not {_article(field.dataType.simpleString())}"
    return f"the item does not fit the schema {schema.simpleString()}"


def explain_text(data: bytes) -> str:
    """Explain why plain text is no map of msgpack; empty if the item is no plain text.

    Args:
        data: the item.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""  # as of every map of msgpack
    if not text.strip():
        return ""
    name, option = ("JSON", "json") if text.lstrip()[0] in "{[" else ("text", "csv")
    return f"the item is {name}, not msgpack: say so by --format {option}"


def explain_lack(row: Mapping[str, Any], schema: StructType) -> str:
    """Name the required field that an item lacks.

    Args:
        row: the item, which is of the right kind otherwise.
        schema: the fields that were wanted.
    """
    for field in schema:
        if not field.nullable and row.get(field.name) is None:
            return f"field {field.name} is missing"
    return f"the item does not fit the schema {schema.simpleString()}"


def _fits(value: Any, kind: DataType) -> bool:
    """Check whether a value is surely no fault; a value that this can't judge counts as fitting."""
    if bits := _BITS.get(type(kind)):
        return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    if isinstance(kind, BooleanType):
        return isinstance(value, bool)
    if isinstance(kind, (FloatType, DoubleType)):
        return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")
    if isinstance(kind, ArrayType):
        return isinstance(value, list)
    if isinstance(kind, (StructType, MapType)):
        return isinstance(value, dict)
    return _fits_text(value, kind)


def _fits_text(value: Any, kind: DataType) -> bool:
    # Dates and times: only their form can be checked here.
    name = kind.simpleString()
    if name == "date" or name.startswith("timestamp"):
        return isinstance(value, str) and value[:4].isdigit()
    return True


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
