"""Reads how long the settled events of each type stay."""

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.writes import BUS_WIDE, Keeping, Keepings
from xbus.errors import JournalError


def read_keepings(connection: sa.Connection) -> Keepings:
    """Read the limits of types that have some, by id; also of removed types, of which events may be left.

    Raises:
        JournalError: somebody edited the table, and a limit makes no sense. Then nothing may be removed.
    """
    rows = connection.execute(_KEEPINGS).all()
    for _, *limits in rows:
        if any(limit is not None and not (isinstance(limit, int | float) and limit >= 0) for limit in limits):
            raise JournalError(f"event_type has limits that make no sense: {limits}")
    found = {event_type_id: Keeping(*limits) for event_type_id, *limits in rows}
    return {event_type_id: keeping for event_type_id, keeping in found.items() if keeping != BUS_WIDE}


_TYPE = model.event_type.c
_KEEPINGS = sa.select(_TYPE.id, _TYPE.keep, _TYPE.keep_bytes, _TYPE.keep_last_per_key, _TYPE.archive_after)
