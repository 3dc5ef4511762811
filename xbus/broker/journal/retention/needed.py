"""Finds the envelopes that somebody still needs, so that they are not removed.

An envelope stays while a role is still owed it (see ``owed.py``), while a reader that keeps has not read it, while
anything of it waits for a person, and while another envelope repeats it. A type that nobody takes keeps nothing.
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
from xbus.broker.journal.retention.owed import OwedPart, read_owed
from xbus.states import ItemState, ReplyState


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
    graphs: dict[UUID, set[int]] = {}
    for envelope_id, graph_id in connection.execute(_GRAPHS, {"ids": ids}):
        graphs.setdefault(envelope_id, set()).add(graph_id)
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
