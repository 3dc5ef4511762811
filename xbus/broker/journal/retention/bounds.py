"""Finds the positions up to which a number of bytes lets events go."""

from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.log.contents import find_newest
from xbus.broker.journal.log.reading import read_head

PAGE_ENVELOPES = 500
"""Envelopes whose bytes one step counts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The bytes of a type's newest events, counted so far.

    Args:
        below: the next step goes on below this position.
        data_bytes: of the events from there on.
        upto: all up to here is beyond the limit; None while that is not known.
    """

    below: int
    data_bytes: int = 0
    upto: int | None = None


def begin_count(connection: sa.Connection) -> Counted:
    """Begin at the head of the log."""
    return Counted(read_head(connection) + 1)


def count_bytes(connection: sa.Connection, event_type_id: int, limit: int, counted: Counted) -> Counted:
    """Count some of the next older events of a type.

    Args:
        limit: so many bytes stay; the event that goes beyond them does not.
        counted: the result of the step before.
    """
    graphs = connection.execute(_GRAPHS, {"of_type": event_type_id}).scalars().all()
    positions = find_newest(connection, graphs, counted.below, PAGE_ENVELOPES)
    if not positions:
        return Counted(0, counted.data_bytes, upto=0)
    sizes: dict[int, int] = dict(connection.execute(_SIZES, {"of_type": event_type_id, "positions": positions}).all())
    total = counted.data_bytes
    for position in positions:
        total += int(sizes.get(position, 0))
        if total > limit:
            return Counted(position, total, upto=position)
    return Counted(positions[-1], total)


_ENVELOPE, _EVENT, _OF_EVENT = model.envelope.c, model.event.c, OfEvent()
_GRAPHS = sa.select(model.graph.c.id).where(model.graph.c.event_type_id == sa.bindparam("of_type"))
_SIZES = (
    sa.select(_ENVELOPE.position, sa.func.sum(_OF_EVENT.size))
    .join(_OF_EVENT.joined, _EVENT.envelope_id == _ENVELOPE.id)
    .where(
        _ENVELOPE.position.in_(sa.bindparam("positions", expanding=True)),
        _EVENT.event_type_id == sa.bindparam("of_type"),
    )
    .group_by(_ENVELOPE.position)
)
