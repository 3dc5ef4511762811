"""Reads the JSON of requests. Pure."""

from xbus.errors import Refused
from xbus.json_text import parse_json


def read_json(text: bytes, place: str = "the body") -> object:
    """Read a text of JSON.

    Args:
        text: in UTF-8.
        place: where it is, for the error.

    Raises:
        Refused: the text is no JSON, or something of it would get lost (``bad_body``).
    """
    try:
        return parse_json(text)
    except ValueError as error:
        raise Refused(f"{place} is no JSON ({error!s:.160})", "correct it", code="bad_body") from None
