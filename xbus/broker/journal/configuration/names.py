"""The rules for names and logins of entries."""

from typing import TypeGuard

LONGEST_NAME = 255
"""Characters; what the database's columns take."""


def is_name(value: object) -> TypeGuard[str]:
    """Check whether ``value`` can name an entry: people can tell it from others, and it fits into the database."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() and value == value.strip()
