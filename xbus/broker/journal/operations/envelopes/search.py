"""Reads which events of a type lie in the log, from the newest back: those whose items somebody searches."""

from collections.abc import Iterator, Sequence
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


# -- recent ------------------------------------------------------------------------------------------------------------
# Reads the newest envelopes with events of a type, by the log's table of contents.

RECENT_ENVELOPES = 500
"""Envelopes of one read. More are fewer statements, and take more memory."""

MOST_READ = 200_000
"""Envelopes that are looked at for one type: where most of them are repeats, fewer events are found than asked for."""


@dataclass(frozen=True, slots=True)
class SentEvents:
    """The events of one type in an envelope that an emitter sent.

    Args:
        emitter: its login.
        events: how many.
        sealed_at: when the envelope was sealed.
    """

    position: int
    envelope_id: UUID
    emitter: str
    events: int
    sealed_at: datetime


def read_recent(connection: sa.Connection, type_name: str, last: int) -> Iterator[SentEvents]:
    """Read the last events of a type, newest first; retries and replays, which repeat others, are left out.

    Args:
        type_name: its present name; an unknown type has no events.
        last: how many events, at the most.
    """
    of_type = sa.select(model.event_type.c.id).where(model.event_type.c.name == type_name)
    type_id = connection.execute(of_type).scalar_one_or_none()
    graphs = connection.execute(sa.select(model.graph.c.id).where(model.graph.c.event_type_id == type_id)).scalars()
    leading, below, read = list(graphs.all()), 2**63 - 1, 0
    while leading and last > 0 and read < MOST_READ:
        positions = find_newest(connection, leading, below, RECENT_ENVELOPES)
        for sent in _read_page(connection, type_id, positions):
            taken = min(sent.events, last)
            yield SentEvents(sent.position, sent.envelope_id, sent.emitter, taken, sent.sealed_at)
            last -= taken
            if last == 0:
                return
        if len(positions) < RECENT_ENVELOPES:
            return
        read += len(positions)
        below = positions[-1]


def _read_page(connection: sa.Connection, type_id: int | None, positions: list[int]) -> list[SentEvents]:
    envelope, event, login = model.envelope.c, model.event.c, model.emitter.c.login
    found = (
        sa.select(envelope.position, envelope.id, login, sa.func.count(), envelope.closed_at)
        .join(model.event, event.envelope_id == envelope.id)
        .join(model.emitter, model.emitter.c.id == envelope.emitter_id)
        .where(envelope.position.in_(positions), event.event_type_id == type_id, envelope.origin_id.is_(None))
        .group_by(envelope.position, envelope.id, login, envelope.closed_at)
        .order_by(envelope.position.desc())
    )
    return [SentEvents(*row) for row in connection.execute(found)]
