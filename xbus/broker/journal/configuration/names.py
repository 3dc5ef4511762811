"""The rules for names and logins of entries, and for paths of fields in items."""

from typing import TypeGuard

LONGEST_NAME = 255
"""Characters; what the database's columns take."""


def is_name(value: object) -> TypeGuard[str]:
    """Check whether ``value`` can name an entry: people can tell it from others, and it fits into the database."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() and value == value.strip()


def is_path(value: object) -> TypeGuard[str]:
    """Check whether ``value`` can name a field in items: keys with dots between them, such as ``card.number``."""
    return is_name(value) and all(value.split("."))
