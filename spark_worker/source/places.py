"""Places in the log, as options name them: a position, a moment, or one of the two ends."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

from spark_worker.options import bad_option


class End(StrEnum):
    """The ends of the log."""

    EARLIEST = "earliest"
    """Where the first envelope lies that is still there."""
    LATEST = "latest"
    """Behind the last one."""


Place: TypeAlias = End | int | datetime
"""A moment means the envelopes that were sealed then or later."""


def parse_place(option: str, text: str) -> Place:
    """Read a place.

    Args:
        option: the option that holds it.
        text: ``earliest``, ``latest``, a position, or a moment in ISO 8601; one without an offset is of UTC.

    Raises:
        ConfigurationError: it is something else.
    """
    if text.lower() in set(End):
        return End(text.lower())
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise bad_option(
            option, text, "is neither a position, nor a moment such as 2026-11-21T08:30:00Z, nor earliest or latest"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
