"""Hides the fields of items that their event type calls secret; pure."""

from collections.abc import Set

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
