"""The words of an error about an item: for the few that a person will look at. Pure."""

import json

LONGEST = 60
"""The most characters of a value that a message shows."""


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


def shown(value: object) -> str:
    """Show a value as JSON would, cut to ``LONGEST``."""
    if isinstance(value, (bool, int, float, str, list, dict)):
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):  # keys that JSON has not, or values too deep
            text = repr(value)
    else:
        text = str(value)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def article(name: str) -> str:
    """Put the article in front of a noun."""
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
