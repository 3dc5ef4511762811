"""Finds where to begin in the log: at a place, at a moment, or at one of its ends."""

from datetime import UTC, datetime
from typing import Literal, TypeAlias

import sqlalchemy as sa

from xbus.broker.journal.log.planning import position_before, read_oldest
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices.values import BadPlace, Place

Start: TypeAlias = Place | datetime | Literal["head", "oldest"]
"""The place to begin; a moment means the first envelope sealed then or later, the head means the next envelope."""


def parse_start(text: str) -> Start:
    """Read where to begin, as people and programs write it: a place, a moment in ISO 8601, ``head`` or ``oldest``.

    A moment without a time zone is one in UTC.

    Raises:
        BadPlace: it is none of these (``place_invalid``, ``moment_invalid``).
    """
    if text == "head":
        return "head"
    if text == "oldest":
        return "oldest"
    if text.replace(":", "").isdecimal():
        return Place.parse(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPlace(
            f"{text!r:.60} is neither a place in the log nor a moment",
            "write a place as 1234 or 1234:0:500, a moment as 2026-11-20T10:00Z, head or oldest",
            code="moment_invalid",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_start(connection: sa.Connection, start: Start) -> Place:
    """Find the place at which to begin.

    Raises:
        BadPlace: the place lies beyond the end of the log (``place_beyond_end``).
    """
    end = Place(read_head(connection) + 1)
    if start == "head":
        return end
    if start == "oldest":
        first = read_oldest(connection)
        return end if first is None else Place(first)
    if isinstance(start, datetime):
        return Place(position_before(connection, start) + 1)
    if start > end:
        raise BadPlace(
            f"the place {start} lies beyond the end of the log, which is {end}",
            "begin at the end or before: head is the end",
            code="place_beyond_end",
        )
    return start
