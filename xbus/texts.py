"""Texts that anything may bring, such as the message of an exception, in a form that everybody can keep.

A text of Python may hold half of a pair of surrogates, as of a file name that is no UTF-8. Neither msgpack nor a
database nor a terminal takes it. PostgreSQL keeps no zero character.
"""

import math

MOST_CHARACTERS = 10_000
"""Characters of a text that goes over the wire as part of an error. More tell more, and fill logs and tables."""


def plain(said: object, most: float = math.inf) -> str:
    """Give the text of any value so that msgpack, JSON, databases and terminals take it; this raises nothing.

    Args:
        most: the most characters of the text.
    """
    try:
        text = said if isinstance(said, str) else str(said)
        if len(text) > most:
            text = text[: int(most)]
        if not text.isascii():
            text = text.encode("utf-8", "backslashreplace").decode()
        return text.replace("\0", "\N{SYMBOL FOR NULL}")
    except Exception:
        return f"a value of the type {type(said).__name__} that has no text"


def fault(error: BaseException, most: float = math.inf) -> str:
    """Give class and message of an exception, as ``plain`` does."""
    return plain(f"{type(error).__name__}: {plain(error)}", most)
