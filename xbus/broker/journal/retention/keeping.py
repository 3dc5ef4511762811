"""Reads how long the settled events of each type stay."""

import math
from collections.abc import Sequence

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.writes import BUS_WIDE, Keeping, Keepings
from xbus.clock import LONGEST_SPAN


def read_keepings(connection: sa.Connection) -> Keepings:
    """Read the limits of types that have some, by id; also of removed types, of which events may be left.

    A time beyond the longest span is for ever. A type keeps everything while an edit by SQL left it a limit that makes
    no sense: health tells of the row.
    """
    found = {event_type_id: _keeping(limits) for event_type_id, *limits in connection.execute(_KEEPINGS).all()}
    return {event_type_id: keeping for event_type_id, keeping in found.items() if keeping != BUS_WIDE}


def _keeping(limits: Sequence[float | None]) -> Keeping:
    makes_sense = all(limit is None or is_limit(limit, least) for limit, least in zip(limits, _LEAST, strict=True))
    if not makes_sense:
        return Keeping(keep=math.inf)
    keep, *others = limits
    is_endless = keep is not None and keep >= LONGEST_SPAN.total_seconds()
    return Keeping(math.inf if is_endless else keep, *others)  # type: ignore[arg-type]


def is_limit(limit: object, least: float) -> bool:
    """Check whether a limit that was read is a number that makes sense: SQLite keeps any value."""
    return isinstance(limit, int | float) and limit >= least


_TYPE = model.event_type.c
_LEAST = (0, 1, 1, 0)
"""The least values of the limits, in the order of the statement."""

_KEEPINGS = sa.select(_TYPE.id, _TYPE.keep, _TYPE.keep_bytes, _TYPE.keep_last_per_key, _TYPE.archive_after)
