"""Reads which events of a type lie in the log, from the newest back: those whose items somebody searches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import find_newest
from xbus.broker.journal.log.envelopes import is_archived

PAGE_ENVELOPES = 100
"""Envelopes of a page. More cost fewer statements, and the progress is told more seldom."""


@dataclass(frozen=True, slots=True)
class SearchedEvent:
    """An event whose items are searched.

    Args:
        closed_at: when its envelope was sealed.
        here: whether its items are in the journal.
        archived: whether only an archive has them; neither where the bus is removing them.
    """

    envelope_id: UUID
    position: int
    closed_at: datetime
    event_id: UUID
    number: int
    here: bool
    archived: bool


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The next events, newest position first, and those of an envelope by number.

    Args:
        below: all of the type from this position on was dealt with; None where nothing older is left.
    """

    events: Sequence[SearchedEvent]
    below: int | None


def read_graphs_of_type(connection: sa.Connection, type_id: int) -> list[int]:
    """Read the versions of the graph of an event type."""
    graph = model.graph.c
    return list(connection.execute(sa.select(graph.id).where(graph.event_type_id == type_id)).scalars())


def read_search_page(connection: sa.Connection, type_id: int, below: int, above: int) -> SearchPage:
    """Read the next events of a type, as emitters sent them.

    Envelopes that repeat others are left out: they bring no item that the first ones do not bring.

    Args:
        below: a position; the events lie below it.
        above: a position; they lie above it.
    """
    graphs = read_graphs_of_type(connection, type_id)
    positions = find_newest(connection, graphs, below, PAGE_ENVELOPES, above)
    if not positions:
        return SearchPage((), None)
    envelope, event = model.envelope.c, model.event.c
    is_gone = envelope.pruned_at.is_not(None)
    statement = (
        sa.select(
            envelope.id,
            envelope.position,
            envelope.closed_at,
            event.id.label("event_id"),
            event.number,
            ~is_gone,
            sa.and_(is_gone, is_archived()),
        )
        .join(model.event, event.envelope_id == envelope.id)
        .where(envelope.position.in_(positions), envelope.origin_id.is_(None), event.event_type_id == type_id)
        .order_by(envelope.position.desc(), event.number)
    )
    events = [SearchedEvent(*row) for row in connection.execute(statement)]
    return SearchPage(events, positions[-1])
