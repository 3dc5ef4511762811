"""Places in the log, as options name them: a position, a moment, or one of the two ends."""

from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TypeAlias

from spark_worker.spark.options import BAD_OPTION, bad_option
from xbus.errors import ConfigurationError


class LogEnd(StrEnum):
    """The ends of the log."""

    EARLIEST = "earliest"
    """The place of the first envelope that still exists."""
    LATEST = "latest"
    """Behind the last one."""


Place: TypeAlias = LogEnd | int | datetime
"""A moment means the envelopes that were sealed then or later."""


def parse_place(option: str, text: str) -> Place:
    """Read a place.

    Args:
        option: the option of the place.
        text: ``earliest``, ``latest``, a position, or a moment in ISO 8601; one without an offset is of UTC.

    Raises:
        ConfigurationError: it is something else.
    """
    if text.lower() in set(LogEnd):
        return LogEnd(text.lower())
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad_option(
            option, text, "is neither a position, nor a moment such as 2026-11-21T08:30:00Z, nor earliest or latest"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def check_position(position: int, head: int) -> None:
    """Let positions pass, and days that were written like one only where the log reaches so far.

    Args:
        position: what a place was read as.
        head: where the log ends.

    Raises:
        ConfigurationError: it must be meant for a day: 20200101.
    """
    if position <= head or len(str(position)) != len("YYYYMMDD"):
        return
    try:
        day = date.fromisoformat(str(position))
    except ValueError:
        return
    raise ConfigurationError(
        f"{position} is read as a position, and the log ends at {head}", f"write {day} for the day", code=BAD_OPTION
    )
