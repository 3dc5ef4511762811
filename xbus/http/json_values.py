"""Gives values of items the form that JSON has for them; pure."""

import base64
import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from xbus.json_views import json_map


def plain(value: object) -> object:
    """Turn a value into one that JSON has: bytes become Base64, infinite numbers null, moments texts of ISO 8601.

    A map in which two keys would be the same name becomes a list of pairs.

    Raises:
        RecursionError: it is nested too deep.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return json_map(value, plain)
        case list() | tuple():
            return [plain(each) for each in value]
    return _moment_text(value)


def _moment_text(value: object) -> str:
    """Write a moment, also one of msgpack, by ISO 8601, and anything else as its text."""
    to_datetime: Callable[[], object] | None = getattr(value, "to_datetime", None)
    if to_datetime is not None:
        # msgpack has years that Python lacks.
        with suppress(OverflowError, ValueError):
            value = to_datetime()
    isoformat: Callable[[], str] = getattr(value, "isoformat", value.__str__)
    return isoformat()
