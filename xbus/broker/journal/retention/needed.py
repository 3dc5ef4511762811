"""Finds the envelopes that somebody still needs, so that they are not removed.

An envelope stays while a role is still owed it, while a reader that keeps has not read it, while anything of it waits
for a person, while another envelope repeats it, and while one of its types has no consumer yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.readers.parked import is_in_parked_batch
from xbus.broker.journal.readers.type_spans import is_in_span
from xbus.states import ItemState, ReplyState

_FOR_EVER = 2**62
"""Above all positions."""


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


def owed_ranges(connection: sa.Connection) -> list[tuple[int, int]]:
    """Find the parts of the log that a role is still owed, or that an unfinished decision concerns.

    A role that was detached is owed nothing, nor is one whose service no graph ever asked for.
    """
    cursor, role = model.cursor.c, model.role.c
    asked_for = sa.exists().where(model.node.c.service_id == role.service_id)
    rows = connection.execute(
        sa.select(cursor.position, cursor.from_position, cursor.until_position)
        .join(model.role, role.id == cursor.role_id)
        .where(role.detached_at.is_(None), asked_for)
    )
    ranges = [
        (max(position + 1, from_position), until - 1 if until is not None else _FOR_EVER)
        for position, from_position, until in rows
    ]
    decision = model.decision.c
    ranges += [
        (position + 1, _FOR_EVER if until is None else until)
        for position, until in connection.execute(sa.select(decision.position, decision.until_position))
    ]
    return sorted((first, last) for first, last in ranges if first <= last)


def behind_owed(owed: Sequence[tuple[int, int]], after: int) -> int:
    """Find the end of the owed part from ``after`` on; ``after`` itself if nobody is owed what follows.

    Args:
        owed: as of ``owed_ranges``.
    """
    for first, last in owed:
        if first <= after + 1 <= last:
            after = last
    return after


def settled_among(
    connection: sa.Connection, found: Sequence[Candidate], needed_by: "Sequence[sa.Select[UUID]] | None" = None
) -> list[Candidate]:
    """Select those of some candidates that nobody needs any more.

    Args:
        needed_by: what finds envelopes that are needed: ``FOR_GOOD`` where they are to go for good, as they are to
            where it is left out; ``FOR_ARCHIVE`` where their items are only to be moved elsewhere.
    """
    owed = owed_ranges(connection)
    ids = [candidate.envelope_id for candidate in found]
    needed = _without_recipient(connection, ids)
    for statement in needed_by or FOR_GOOD:
        needed.update(connection.execute(statement, {"ids": ids}).scalars())
    return [
        candidate
        for candidate in found
        if candidate.envelope_id not in needed and not any(a <= candidate.position <= b for a, b in owed)
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


def _without_recipient(connection: sa.Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Collect envelopes that wait for the first consumer of a type, or for the first role of a service."""
    event, node, service = model.event.c, model.node.c, model.service.c
    graphs: dict[int, set[UUID]] = {}
    for envelope_id, graph_id in connection.execute(
        sa.select(event.envelope_id, event.graph_id).where(event.envelope_id.in_(ids))
    ):
        graphs.setdefault(graph_id, set()).add(envelope_id)
    has_role = sa.exists().where(model.role.c.service_id == service.id, model.cursor.c.role_id == model.role.c.id)
    served: set[int] = set()
    unserved: set[int] = set()
    for graph_id, is_served in connection.execute(
        sa.select(node.graph_id, sa.or_(has_role, service.removed_at.is_not(None)))
        .join(model.service, service.id == node.service_id)
        .where(node.graph_id.in_(list(graphs)), service.kind == "consumer")
    ):
        (served if is_served else unserved).add(graph_id)
    waiting = [envelopes for graph_id, envelopes in graphs.items() if graph_id not in served - unserved]
    return set().union(*waiting)
