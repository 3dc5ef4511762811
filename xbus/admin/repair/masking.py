"""Hides the secret fields of items, and puts back those that a person left hidden; pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import count
from typing import cast

from xbus.errors import Refused
from xbus.json_views import cut
from xbus.rpc.codec import Value

MASK = "***"
"""The text in place of a secret value, whatever its type: a length or a type may tell something, too."""

DATA_OF_REPLY = ("source_data", "current_data", "out_data")
"""The keys of details under which a consumer shows an item that waits for clearing."""

_NUMBERED = re.compile(rf"{re.escape(MASK)}(\d{{0,9}})")


def mask(value: Value, paths: Set[str]) -> Value:
    """Hide the values of some keys, in maps and in the lists in them; all else stays as it is.

    Args:
        value: of an item.
        paths: each the keys from the outermost map to the secret one, with dots between them. A key that has dots
            itself is found, too.

    Example:
        >>> mask({"card": {"number": "4711", "of": "Ada"}, "paid": [{"iban": "DE02"}]}, {"card.number", "paid.iban"})
        {'card': {'number': '***', 'of': 'Ada'}, 'paid': [{'iban': '***'}]}
    """
    return _replaced(value, paths, lambda _: MASK)


def numbered_mask(value: Value, paths: Set[str]) -> Value:
    """Hide the same values, each under a number of its own, so that :func:`unmask` knows it wherever it is put.

    Example:
        >>> numbered_mask([{"iban": "DE02"}, {"iban": "DE03"}], {"iban"})
        [{'iban': '***1'}, {'iban': '***2'}]
    """
    numbers = count(1)
    return _replaced(value, paths, lambda _: f"{MASK}{next(numbers)}")


def unmask(value: Value, present: Value, paths: Set[str]) -> Value:
    """Put back the secret values that :func:`numbered_mask` hid and a person left as they were.

    Args:
        value: as the person wrote it.
        present: that was shown to the person with masks.
        paths: as of :func:`mask`.

    Raises:
        Refused: a mask stands for no value (``bad_mask``).
    """
    secrets: list[Value] = []

    def keep(secret: Value) -> Value:
        secrets.append(secret)
        return secret

    def reveal(written: Value) -> Value:
        found = _NUMBERED.fullmatch(written) if isinstance(written, str) else None
        if found is None:
            return written
        number = int(found[1] or 0)
        if not 1 <= number <= len(secrets):
            raise Refused(
                f"{found[0]} is a mask, and no secret value of the item has this number",
                f"write the value itself, or {MASK}1 for the first one that it has",
                code="bad_mask",
            )
        return secrets[number - 1]

    _replaced(present, paths, keep)
    return _replaced(value, paths, reveal)


def mask_details(details: Iterable[Value], secrets: Mapping[str, Set[str]]) -> list[Value]:
    """Hide the secret fields of items in the details that a consumer gives of them.

    Args:
        secrets: the secret fields of each type. All count: the details do not say of which type their item is.
    """
    paths = {f"{key}.{field}" for fields in secrets.values() for field in fields for key in DATA_OF_REPLY}
    return [mask(cast(Value, cut(each)), paths) for each in details]


def _replaced(value: Value, paths: Set[str], replace: Callable[[Value], Value], within: str = "") -> Value:
    match value:
        case dict() if paths:
            places = {key: f"{within}{_word(key)}" for key in value}
            return {
                key: replace(inner) if places[key] in paths else _replaced(inner, paths, replace, f"{places[key]}.")
                for key, inner in value.items()
            }
        case list() if paths:
            return [_replaced(element, paths, replace, within) for element in value]
    return value


def _word(key: object) -> str:
    # Clients of 0.2.0 may send keys as bytes.
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)
