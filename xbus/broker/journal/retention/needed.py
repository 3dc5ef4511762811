"""Finds the envelopes that somebody still needs, so that they are not removed.

An envelope stays while a role is still owed it, while a reader that keeps has not read it, while
anything of it waits for a person, and while another envelope repeats it. A type that nobody takes keeps nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import grouped
from xbus.broker.journal.log.contents import find_listed
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.readers.parked import is_in_parked_batch
from xbus.broker.journal.readers.settings import is_in_span
from xbus.states import ItemState, ReplyState

# -- owed --------------------------------------------------------------------------------------------------------------
# Finds the envelopes that consumers are still owed by their graphs: an absent role keeps its own types alone.
#
# The table of contents says where the envelopes of a graph lie. So a search passes a million owed envelopes at once,
# and finds those of other types among them.

FOR_EVER = 2**62
"""Above all positions."""


@dataclass(frozen=True, slots=True)
class OwedPart:
    """A part of the log in which envelopes with events of some graphs stay.

    Args:
        first: its first position.
        last: its last position.
        graphs: their ids; None for all.
    """

    first: int
    last: int
    graphs: frozenset[int] | None

    def keeps(self, position: int, graphs: Collection[int]) -> bool:
        """Check whether an envelope with events of these graphs stays."""
        return self.first <= position <= self.last and (self.graphs is None or not self.graphs.isdisjoint(graphs))


@dataclass(frozen=True, slots=True)
class FreePart:
    """A part of the log in which a search looks for envelopes that are not owed.

    Args:
        after: it begins behind this position.
        last: its last position.
        positions: the only ones that may hold such envelopes; None where each may.
    """

    after: int
    last: int
    positions: Sequence[int] | None


def read_owed(connection: sa.Connection, *, with_unclaimed: bool = False) -> list[OwedPart]:
    """Read the parts of the log that a role is still owed, or that an unfinished decision concerns.

    A role that was detached is owed nothing, nor is one to whose service no graph leads. A service that has no role yet
    is owed all that leads to it: its first role begins with that.

    Args:
        with_unclaimed: whether the events of types that nobody takes stay, too.
    """
    parts = [*_of_roles(connection), *_of_decisions(connection)]
    whole = set(connection.execute(_WITHOUT_ROLE).scalars())
    if with_unclaimed:
        whole.update(connection.execute(UNCLAIMED).scalars())
    if whole:
        parts.append(OwedPart(1, FOR_EVER, frozenset(whole)))
    return parts


def _of_roles(connection: sa.Connection) -> Iterator[OwedPart]:
    head = read_head(connection)
    behind = [
        (service_id, max(position + 1, from_position), FOR_EVER if until is None else until - 1)
        for service_id, position, from_position, until in connection.execute(_CURSORS)
        if position < head
    ]
    services = {"services": list({service_id for service_id, _, _ in behind})}
    graphs = grouped(connection.execute(_GRAPHS_OF, services) if behind else ())
    for service_id, first, last in behind:
        if first <= last and service_id in graphs:
            yield OwedPart(first, last, frozenset(graphs[service_id]))


def _of_decisions(connection: sa.Connection) -> Iterator[OwedPart]:
    for position, until in connection.execute(_DECISIONS):
        yield OwedPart(position + 1, FOR_EVER if until is None else until, None)


def next_free(
    connection: sa.Connection, owed: Sequence[OwedPart], after: int, most: int, types: Collection[int] | None = None
) -> FreePart | None:
    """Find the next part of the log above a position that may hold envelopes that nobody is owed.

    Args:
        owed: as of :func:`read_owed`.
        after: the position.
        most: the most positions to name.
        types: the ids of types of which such an envelope must hold an event; None for any.

    Returns:
        None where nothing above the position is free.
    """
    graphs: list[tuple[int, int]] | None = None
    while after < FOR_EVER:
        here = [part for part in owed if part.first <= after + 1 <= part.last]
        ends = [part.last for part in here] + [part.first - 1 for part in owed if part.first > after + 1]
        last = min(ends, default=FOR_EVER)
        if not here:
            return FreePart(after, last, None)
        if all(part.graphs is not None for part in here):
            graphs = graphs or [(graph_id, type_id) for graph_id, type_id in connection.execute(_ALL_GRAPHS)]
            free = [
                graph_id
                for graph_id, type_id in graphs
                if (types is None or type_id in types) and not any(part.keeps(after + 1, (graph_id,)) for part in here)
            ]
            listed = find_listed(connection, free, after, most, last) if free else None
            if listed is not None and listed.positions:
                return FreePart(after, listed.upto, listed.positions)
            if listed is not None and listed.upto < last:
                # Behind the table of contents the log itself is read.
                return FreePart(listed.upto, last, None)
        after = last
    return None


_CURSOR, _ROLE, _NODE, _SERVICE = model.cursor.c, model.role.c, model.node.c, model.service.c
_SERVICES: sa.BindParameter[Any] = sa.bindparam("services", expanding=True)
_CURSORS = (
    sa.select(_ROLE.service_id, _CURSOR.position, _CURSOR.from_position, _CURSOR.until_position)
    .join(model.role, _ROLE.id == _CURSOR.role_id)
    .where(_ROLE.detached_at.is_(None))
)
_GRAPHS_OF = sa.select(_NODE.service_id, _NODE.graph_id).where(_NODE.service_id.in_(_SERVICES)).distinct()
_ALL_GRAPHS = sa.select(model.graph.c.id, model.graph.c.event_type_id)
_DECISIONS = sa.select(model.decision.c.position, model.decision.c.until_position)
_HAS_ROLE = sa.exists().where(_ROLE.service_id == _SERVICE.id, _CURSOR.role_id == _ROLE.id)
_WITHOUT_ROLE = (
    sa.select(_NODE.graph_id)
    .join(model.service, _SERVICE.id == _NODE.service_id)
    .where(_SERVICE.kind == "consumer", _SERVICE.removed_at.is_(None), ~_HAS_ROLE)
    .distinct()
)
_LEADS_TO_CONSUMER = (
    sa.exists()
    .where(_NODE.graph_id == model.graph.c.id, _SERVICE.id == _NODE.service_id, _SERVICE.kind == "consumer")
    .correlate(model.graph)
)
_IS_READ = (
    sa.exists()
    .where(
        model.reader_event_type.c.event_type_id == model.graph.c.event_type_id,
        _SERVICE.id == model.reader_event_type.c.service_id,
        _SERVICE.removed_at.is_(None),
    )
    .correlate(model.graph)
)
UNCLAIMED = sa.select(model.graph.c.id).where(~_LEADS_TO_CONSUMER, ~_IS_READ)
"""Finds the graphs of types that lead to no consumer, and that no reader, subscriber or bot reads."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An envelope that may go.

    Args:
        data_bytes: of its segments; None for a cancelled one, of which that is not known.
        keeps_row: whether its own row stays, with its receipt.
        is_begun: whether its removal was begun before: it must be ended.
    """

    envelope_id: UUID
    position: int
    closed_at: datetime
    data_bytes: int | None
    keeps_row: bool
    is_begun: bool = False


def settled_among(
    connection: sa.Connection,
    found: Sequence[Candidate],
    needed_by: "Sequence[sa.Select[UUID]] | None" = None,
    owed: Sequence[OwedPart] | None = None,
) -> list[Candidate]:
    """Select those of some candidates that nobody needs any more.

    Args:
        needed_by: what finds envelopes that are needed: ``FOR_GOOD`` where they are to go for good, as they are to
            where it is left out; ``FOR_ARCHIVE`` where their items are only to be moved elsewhere.
    """
    owed = read_owed(connection) if owed is None else owed
    ids = [candidate.envelope_id for candidate in found]
    graphs = grouped(connection.execute(_GRAPHS, {"ids": ids}))
    needed: set[UUID] = set()
    for statement in needed_by or FOR_GOOD:
        needed.update(connection.execute(statement, {"ids": ids}).scalars())
    return [
        candidate
        for candidate in found
        if candidate.envelope_id not in needed
        and not any(part.keeps(candidate.position, graphs.get(candidate.envelope_id, ())) for part in owed)
    ]


IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)


def _unread() -> sa.Select[UUID]:
    """Find envelopes with events that a reader that keeps has not read, or that are in a parked batch."""
    reader, stretch, range_ = model.reader.c, model.reader_stretch.c, model.reader_range.c
    place = (
        sa.select(sa.func.min(stretch.position))
        .join(model.reader_range, range_.id == stretch.range_id)
        .where(range_.service_id == reader.service_id, range_.completed_at.is_(None), range_.batch_of.is_(None))
        .correlate(model.reader)
        .scalar_subquery()
    )
    read_type, ended = model.reader_event_type.c, model.subscription_state.c
    return (
        sa.select(model.envelope.c.id)
        .join(model.event, model.event.c.envelope_id == model.envelope.c.id)
        .join(model.graph, model.graph.c.id == model.event.c.graph_id)
        .join(model.reader_event_type, read_type.event_type_id == model.graph.c.event_type_id)
        .join(model.reader, reader.service_id == read_type.service_id)
        .join(model.service, model.service.c.id == reader.service_id)
        .where(
            model.envelope.c.id.in_(IDS),
            model.service.c.removed_at.is_(None),
            is_in_span(model.envelope.c.position),
            sa.or_(
                sa.and_(
                    reader.keeps,
                    reader.detached_at.is_(None),
                    ~sa.exists().where(ended.service_id == reader.service_id, ended.ended_at.is_not(None)),
                    model.envelope.c.position >= place,
                ),
                is_in_parked_batch(reader.service_id, model.envelope.c.position),
            ),
        )
    )


_GRAPHS = sa.select(model.event.c.envelope_id, model.event.c.graph_id).where(model.event.c.envelope_id.in_(IDS))

OPEN_REPLIES = (ReplyState.ASKED.value, ReplyState.HELD.value)
_AGAIN = model.event.alias("again")
_OTHERWISE: tuple[sa.Select[UUID], ...] = (
    _unread(),
    sa.select(model.delivery.c.envelope_id).where(model.delivery.c.envelope_id.in_(IDS)),
    sa.select(model.parked_item.c.envelope_id).where(
        model.parked_item.c.envelope_id.in_(IDS), model.parked_item.c.state == ItemState.PARKED.value
    ),
    sa.select(model.reply.c.envelope_id).where(
        model.reply.c.envelope_id.in_(IDS), model.reply.c.state.in_(OPEN_REPLIES)
    ),
)
"""Find envelopes that something else needs: a reader, a delivery row, a parked item, or an open reply."""
_REPEATED = (
    sa.select(model.event.c.envelope_id)
    .join(_AGAIN, _AGAIN.c.origin_id == model.event.c.id)
    .where(model.event.c.envelope_id.in_(IDS))
)
_REPEAT = model.envelope.alias("repeat")

FOR_GOOD = (*_OTHERWISE, _REPEATED)
"""Find envelopes that must not be removed: these also by another envelope that repeats them."""

FOR_ARCHIVE = (
    *_OTHERWISE,
    _REPEATED.join(_REPEAT, _REPEAT.c.id == _AGAIN.c.envelope_id).where(_REPEAT.c.pruned_at.is_(None)),
)
"""Find envelopes whose items must stay: a repeat that is archived itself has files of its own."""
