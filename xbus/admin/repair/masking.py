"""Hides the fields of items that their event type calls secret; pure."""

from collections.abc import Set
from itertools import zip_longest

from xbus.rpc.codec import Value

MASK = "***"
"""The text in place of a secret value, whatever its type: a length or a type may tell something, too."""


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
    return _masked(value, paths, "") if paths else value


def unmask(value: Value, before: Value, paths: Set[str]) -> Value:
    """Put hidden values back where a person has changed a value that was shown with :func:`mask`.

    Args:
        value: as the person leaves it; a mask that still stands at a secret place means the value of before.
        before: as it was before it was shown.
        paths: those of :func:`mask`.

    Example:
        >>> unmask({"iban": "***", "of": "Ben"}, {"iban": "DE02", "of": "Ada"}, {"iban"})
        {'iban': 'DE02', 'of': 'Ben'}
    """
    return _unmasked(value, before, paths, "") if paths else value


def _unmasked(value: Value, before: Value, paths: Set[str], within: str) -> Value:
    match value, before:
        case dict(), dict():
            places = {key: f"{within}{_word(key)}" for key in value}
            return {
                key: before[key]
                if places[key] in paths and inner == MASK and key in before
                else _unmasked(inner, before.get(key), paths, f"{places[key]}.")
                for key, inner in value.items()
            }
        case list(), list():
            pairs = zip_longest(value, before[: len(value)])
            return [_unmasked(element, formerly, paths, within) for element, formerly in pairs]
    return value


def _masked(value: Value, paths: Set[str], within: str) -> Value:
    match value:
        case dict():
            places = {key: f"{within}{_word(key)}" for key in value}
            return {
                key: MASK if places[key] in paths else _masked(inner, paths, f"{places[key]}.")
                for key, inner in value.items()
            }
        case list():
            return [_masked(element, paths, within) for element in value]
    return value


def _word(key: object) -> str:
    # Clients of 0.2.0 may send keys as bytes.
    return key.decode(errors="replace") if isinstance(key, bytes) else str(key)
