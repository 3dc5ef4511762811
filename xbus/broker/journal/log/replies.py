"""Reads of front and back about immediate replies. Each function is one short read."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import value_of
from xbus.broker.journal.log.reading import LogEvent
from xbus.headers import EventTags
from xbus.states import EnvelopeState, ReplyState


@dataclass(frozen=True, slots=True)
class StoredReply:
    """See ``model.reply``."""

    event_id: UUID
    envelope_id: UUID
    state: ReplyState
    until: datetime
    role_id: int | None
    data: bytes | None
    code: str | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class Ask:
    """An event whose emitter waits for the reply.

    Args:
        event: with the items that it has now; its emitter adds none while it waits.
        until: the end of the emitter's wait.
        cancelled: whether its envelope was cancelled.
        headers: those of its envelope, packed.
    """

    envelope_id: UUID
    event: LogEvent
    until: datetime
    cancelled: bool
    headers: bytes | None = None


def read_replies(connection: sa.Connection, event_ids: Collection[UUID]) -> dict[UUID, StoredReply]:
    """Read the existing replies to some events, by event id."""
    return {reply.event_id: reply for reply in _replies(connection, model.reply.c.event_id.in_(event_ids))}


def read_held_replies(connection: sa.Connection) -> list[StoredReply]:
    """Read the replies whose envelopes are still open at the recipients that gave them."""
    return _replies(connection, model.reply.c.state == ReplyState.HELD.value)


def _replies(connection: sa.Connection, which: sa.ColumnElement[bool]) -> list[StoredReply]:
    return [
        value_of(StoredReply, row, state=ReplyState(row.state), data=None if row.data is None else bytes(row.data))
        for row in connection.execute(sa.select(model.reply).where(which))
    ]


def read_asks(connection: sa.Connection) -> list[Ask]:
    """Read the events whose emitters wait now."""
    items = (
        sa.select(sa.func.coalesce(sa.func.sum(model.segment.c["items"]), 0))
        .where(model.segment.c.event_id == model.event.c.id)
        .scalar_subquery()
    )
    statement = (
        sa.select(
            *(model.reply.c.envelope_id, model.event.c.id, model.event_type.c.name, model.event.c.graph_id),
            *(items.label("item_count"), model.reply.c.until, model.envelope.c.state),
            *(model.envelope.c.headers.label("envelope_headers"), *model.EVENT_TAGS),
        )
        .join(model.event, model.event.c.id == model.reply.c.event_id)
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .join(model.envelope, model.envelope.c.id == model.reply.c.envelope_id)
        .where(model.reply.c.state == ReplyState.ASKED.value)
    )
    return [
        Ask(
            envelope_id,
            LogEvent(event_id.bytes, type_name, graph_id, int(item_count), tags=EventTags(*tags)),
            until,
            state == EnvelopeState.CANCELLED,
            headers,
        )
        for envelope_id, event_id, type_name, graph_id, item_count, until, state, headers, *tags in connection.execute(
            statement
        )
    ]


def read_cancelled(connection: sa.Connection, envelope_ids: Collection[UUID]) -> set[UUID]:
    """Select the cancelled ones of some envelopes."""
    cancelled = model.envelope.c.state == EnvelopeState.CANCELLED.value
    statement = sa.select(model.envelope.c.id).where(model.envelope.c.id.in_(envelope_ids), cancelled)
    return set(connection.execute(statement).scalars())
