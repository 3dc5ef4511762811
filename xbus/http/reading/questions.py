"""Reads what requests of reading programs say in their queries and headers. Pure."""

import hashlib
import re
from datetime import datetime, timedelta
from uuid import UUID

from xbus.errors import Refused
from xbus.http.reading.tickets import parse_place
from xbus.ids import parse_uuid
from xbus.rpc.codec import Value

MOST_WAIT_SECONDS = 30.0
"""Seconds that a request may wait. More meets the time-outs of web servers in between."""

LONGEST_PROGRAM = 100

AT = "from:"
"""An event id with this before its place says where to go on, where no item came yet."""

_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)?", re.ASCII)
_AGE = re.compile(r"-?(\d{1,9}(?:\.\d{1,9})?)(min|h|d|w)", re.ASCII)
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def seconds_of(text: str) -> float:
    """Read how long a request may wait: ``20s``, ``500ms``, or seconds alone.

    Raises:
        Refused: it says something else, or too much (``bad_request``).
    """
    found = _SECONDS.fullmatch(text)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else -1.0
    if not 0 <= seconds <= MOST_WAIT_SECONDS:
        advice = f"write 20s or 500ms; at most {MOST_WAIT_SECONDS:g}s"
        raise Refused(f"wait is {text!r:.40}", advice, code="bad_request")
    return seconds


def program_id(token: str, name: str) -> str:
    """Make the id of a program from its name; the same at each gateway.

    It depends on the token, so that nobody without it can meet the program. A UUID stands for itself.

    Args:
        token: of its requests.
        name: that it gives itself; empty for the only program of the token.

    Raises:
        Refused: the name is too long (``bad_request``).
    """
    if len(name) > LONGEST_PROGRAM:
        raise Refused(
            f"the name of the program has {len(name)} characters",
            f"give it one of at most {LONGEST_PROGRAM}",
            code="bad_request",
        )
    given = parse_uuid(name) if name else None
    digest = hashlib.sha256(f"{token}\0{name}".encode()).digest()
    return str(given or UUID(bytes=digest[:16], version=5))


def start_of(text: str, now: datetime) -> Value:
    """Read where to begin: an age such as ``-1h``; anything else is for the back to read.

    Raises:
        Refused: the age goes back behind all time (``moment_invalid``).
    """
    age = _AGE.fullmatch(text)
    if age is None:
        # A plus sign in a query is a blank.
        return text.replace(" ", "+")
    try:
        return (now - timedelta(**{_UNITS[age[2]]: float(age[1])})).isoformat()
    except OverflowError:
        raise Refused(f"{text} is longer ago than time goes back", "write oldest", code="moment_invalid") from None


def start_after(event_id: str) -> Value:
    """Read where to go on behind an event with this id: behind the item that it names.

    Raises:
        Refused: it is none of ours (``place_invalid``).
    """
    if event_id.startswith(AT):
        return [*parse_place(event_id.removeprefix(AT))]
    position, event, item = parse_place(event_id)
    return [position, event, item + 1]
