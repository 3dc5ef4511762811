"""Headers as texts: for people, for commands, and for columns of tables; pure."""

import json
from datetime import datetime

from xbus.errors import Refused
from xbus.headers.packing import BAD_HEADER, HeaderValue, unpack_headers
from xbus.json_text import parse_json


def header_text(value: HeaderValue) -> str:
    """Write a value as text: a moment in ISO 8601, a boolean as true or false."""
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + "Z"
    return value if isinstance(value, str) else json.dumps(value)


def header_texts(data: bytes | None) -> dict[str, str]:
    """Write packed headers as texts, by name."""
    return {name: header_text(value) for name, value in unpack_headers(data).items()}


def joined_texts(of_envelope: bytes | None, of_event: bytes | None) -> dict[str, str]:
    """Write the headers of an event and of its envelope as one map; the event's header wins."""
    return header_texts(of_envelope) | header_texts(of_event)


def header_of_text(option: str) -> tuple[str, object]:
    """Read ``name=value``, whose value is a text, or ``name:=value``, whose value is JSON.

    Raises:
        Refused: it is neither (``bad_header``).
    """
    name, found, value = option.partition("=")
    if not found:
        raise Refused(f"{option!r:.80} is no header", "give it as name=text or name:=JSON", code=BAD_HEADER)
    if not name.endswith(":"):
        return name, value
    name = name.removesuffix(":")
    try:
        return name, parse_json(value)
    except ValueError as error:
        step = "give a number, true, false or a text in quotes behind :="
        raise Refused(f"header {name} is no JSON: {value!r:.40}", step, code=BAD_HEADER) from error
