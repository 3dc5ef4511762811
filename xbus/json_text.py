"""Reads JSON (RFC 8259) so that nothing of it gets lost, where the library's reader takes more than it keeps. Pure."""

import json
import math
import re
from decimal import Decimal
from typing import NoReturn

_SURE_CHARACTERS = 16
"""A number with a point and without an exponent has up to 15 digits then, which a double always holds."""

_NOT_ZERO = re.compile(r"[-0.]*[1-9]")
"""Begins a number that is not zero, whatever its exponent."""

_LONGEST_CHARACTERS = 1_100
"""Above all that a double takes when every digit of it is written."""


_HALF = re.compile("[\ud800-\udfff]")
"""Half of a pair of surrogates, which JSON can say and no encoding can."""


class LossyJson(ValueError):
    """JSON that says more than values in memory keep: it is neither taken as it is, nor as a text."""


def parse_json(text: str | bytes) -> object:
    """Read a text of JSON.

    Raises:
        ValueError: it is none.
        LossyJson: it is nested too deeply, has a name twice in a map, or a number that no double holds.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        found: object = json.loads(text, parse_constant=_no_constant, parse_float=exact_float, object_pairs_hook=_map)
    except RecursionError:
        raise LossyJson("it is nested too deeply") from None
    return found


def without_halves(text: str) -> str:
    """Write each half of a pair of surrogates in a text of JSON as its escape. The text can be encoded then."""
    return text if text.isascii() else _HALF.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def exact_float(text: str) -> float:
    """Read a decimal number as a double, of which as many digits give the same number again.

    Raises:
        LossyJson: a double has not so many digits, or is too small or too large.
    """
    value = float(text)
    if len(text) <= _SURE_CHARACTERS and text.isascii() and not set(text) & {"e", "E"}:
        return value
    if math.isinf(value):
        raise LossyJson(f"the number {text:.40} is too large")
    if not value and _NOT_ZERO.match(text):
        raise LossyJson(f"the number {text:.40} is too small for a double: write it as a text, in quotes")
    if len(text) > _LONGEST_CHARACTERS or not _is_same(value, text):
        raise LossyJson(f"the number {text:.40} has more digits than a double holds: write it as a text, in quotes")
    return value


def _is_same(value: float, text: str) -> bool:
    """Check whether a double is a number as written: by its shortest text, or rounded to the digits that were given."""
    try:
        written = Decimal(text)
    except ArithmeticError:
        return False
    digits = len(written.as_tuple().digits)
    return written in (Decimal(repr(value)), Decimal(f"{value:.{digits - 1}e}"))


def _map(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names: set[str] = set()
        for name, _ in pairs:
            if name in names:
                raise LossyJson(f'a map has the name "{name:.80}" twice')
            names.add(name)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")
