"""Reads JSON (RFC 8259) strictly, where Python's reader takes more than it. Pure."""

import json
import math
from typing import NoReturn

from xbus.rpc.codec import Value


def parse_json(text: str | bytes) -> Value:
    """Read a text of JSON.

    Raises:
        ValueError: it is none, is nested too deeply, or has a number that no float holds.
    """
    try:
        value: Value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def _finite(text: str) -> float:
    # Python reads 1e999 as infinite.
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text:.40} is too large")
    return value
