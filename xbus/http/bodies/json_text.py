"""Reads JSON (RFC 8259) strictly: what has no form in it, or at the bus, is refused. Pure."""

import json
import math
from typing import NoReturn

from xbus.errors import Refused


def parse_json(text: bytes, place: str) -> object:
    """Read a text of JSON.

    Args:
        text: in UTF-8.
        place: where it is, for the error.

    Raises:
        Refused: the text is no JSON (``bad_body``).
    """
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(f"{place} is no JSON ({reason:.120})", "correct it", code="bad_body") from None


def _finite(text: str) -> float:
    # Python reads 1e999 as infinite, which no JSON can say and nobody meant.
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text:.40} is too large")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
