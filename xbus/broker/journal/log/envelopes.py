"""Envelopes whatever became of them, as the front takes them up again. Each function is one short read."""

from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.writes import SealReceipt
from xbus.envelope import PLAIN_HEAD, EnvelopeHead
from xbus.headers import NO_TAGS, EventTags
from xbus.ids import is_computed
from xbus.states import EnvelopeState


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the journal knows it; ``items`` and ``data_bytes`` are those of its segments.

    Args:
        first_name: the name with which its type was made; hashes hold it.
        damaged: whether segments are missing between those that are there: a write failed and one behind it did not.
    """

    event_id: UUID
    number: int
    type_name: str
    first_name: str
    items: int
    data_bytes: int
    damaged: bool
    ended: bool
    origin_id: UUID | None = None
    tags: EventTags = NO_TAGS

    @property
    def segments_id(self) -> UUID:
        """The event under whose id its items are stored: itself, or the one that it repeats."""
        return self.origin_id or self.event_id


@dataclass(frozen=True, slots=True)
class StoredEnvelope:
    """An envelope as the journal knows it.

    Args:
        events: none of them where it is pruned.
        receipt: where it is received.
        head: without its headers where they were removed.
        content_hash: where it is received and has a key.
        pruned: whether its content was removed.
        reason: why it was cancelled, where it was.
        went_back: whether the journal went back since it was opened, where it is open: items that were acknowledged may
            be gone.
    """

    envelope_id: UUID
    emitter_id: int
    state: EnvelopeState
    events: tuple[StoredEvent, ...]
    receipt: SealReceipt | None
    head: EnvelopeHead = PLAIN_HEAD
    content_hash: bytes | None = None
    pruned: bool = False
    reason: str | None = None
    went_back: bool = False


def read_envelope(connection: sa.Connection, envelope_id: UUID) -> StoredEnvelope | None:
    """Read one envelope, whatever became of it; None if no envelope has this id.

    One that was removed is known as long as its key is kept.
    """
    row = connection.execute(_ENVELOPE, {"of_id": envelope_id}).one_or_none()
    if row is not None:
        return _stored_envelope(connection, row)
    # Ids are computed of keys alone.
    return _read_spent(connection, envelope_id) if is_computed(envelope_id) else None


def _read_spent(connection: sa.Connection, envelope_id: UUID) -> StoredEnvelope | None:
    spent = connection.execute(_SPENT, {"of_id": envelope_id}).one_or_none()
    if spent is None:
        return None
    head = EnvelopeHead(key=spent.key)
    if spent.position is None:
        reason = read_cancel_reason(connection, envelope_id)
        closed = (envelope_id, spent.emitter_id, EnvelopeState.CANCELLED, (), None)
        return StoredEnvelope(*closed, head, pruned=True, reason=reason)
    receipt = SealReceipt(envelope_id, spent.position, spent.events, spent.items, spent.bytes, bytes(spent.hash))
    sealed = (envelope_id, spent.emitter_id, EnvelopeState.RECEIVED, (), receipt)
    return StoredEnvelope(*sealed, head, bytes(spent.content_hash), pruned=True)


_ENVELOPE = sa.select(model.envelope).where(model.envelope.c.id == sa.bindparam("of_id"))
"""Made once, as the front asks by it for each new envelope that comes whole."""

_IS_LOST = sa.select(sa.exists().where(model.loss.c.at >= sa.bindparam("since", type_=model.loss.c.at.type)))
"""Whether the journal went back since a moment."""

_SPENT = sa.select(model.spent_key).where(model.spent_key.c.envelope_id == sa.bindparam("of_id"))


def _stored_envelope(connection: sa.Connection, row: sa.Row[tuple[object, ...]]) -> StoredEnvelope:
    envelope = row._mapping
    events = _stored_events(connection, envelope["id"])
    state = EnvelopeState(envelope["state"])
    receipt = None
    if state is EnvelopeState.RECEIVED:
        receipt = SealReceipt(*(envelope[name] for name in ("id", "position", "events", "items", "bytes", "hash")))
    return StoredEnvelope(
        envelope["id"],
        envelope["emitter_id"],
        state,
        events,
        receipt,
        EnvelopeHead(*(envelope[column.name] for column in model.ENVELOPE_HEAD)),
        None if envelope["content_hash"] is None else bytes(envelope["content_hash"]),
        envelope["pruned_at"] is not None,
        read_cancel_reason(connection, envelope["id"]) if state is EnvelopeState.CANCELLED else None,
        went_back=state is EnvelopeState.OPEN and bool(connection.scalar(_IS_LOST, {"since": envelope["opened_at"]})),
    )


def _stored_events(connection: sa.Connection, envelope_id: UUID) -> tuple[StoredEvent, ...]:
    source = model.event.alias("source")
    segments = OfEvent(source)
    # A segment of a small event begins at its index 0.
    first_index = sa.func.coalesce(model.segment.c.first_index, 0)
    named = (model.event.c.id, model.event.c.number, model.event_type.c.name, model.event_type.c.first_name)
    statement = (
        sa.select(
            *named,
            sa.func.coalesce(sa.func.sum(segments.items), 0),
            sa.func.coalesce(sa.func.sum(segments.size), 0),
            sa.func.coalesce(sa.func.max(first_index + segments.items), 0),
            model.event.c["items"].is_not(None),
            model.event.c.origin_id,
            *model.EVENT_TAGS,
        )
        .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
        .join(segments.joined, source.c.id == sa.func.coalesce(model.event.c.origin_id, model.event.c.id))
        .where(model.event.c.envelope_id == envelope_id)
        .group_by(
            *(*named, model.event.c["items"], model.event.c.origin_id, *model.EVENT_TAGS),
        )
        .order_by(model.event.c.number)
    )
    return tuple(
        StoredEvent(
            *(event_id, number, name, first, int(items), int(size), int(items) != end, bool(ended), origin_id),
            tags=EventTags(*tags),
        )
        for event_id, number, name, first, items, size, end, ended, origin_id, *tags in connection.execute(statement)
    )


def read_cancel_reason(connection: sa.Connection, envelope_id: UUID) -> str | None:
    """Read why an envelope was cancelled; None where it was not."""
    history = model.history.c
    told = sa.select(history.reason).where(
        history.subject == "envelope",
        history.subject_id == str(envelope_id),
        history.move == EnvelopeState.CANCELLED.value,
    )
    reason: str | None = connection.execute(told.order_by(history.id.desc()).limit(1)).scalar_one_or_none()
    return reason


def read_open_envelopes(connection: sa.Connection) -> list[UUID]:
    """Read the envelopes whose emitters still send, or have left them open."""
    return list(connection.execute(sa.select(model.envelope.c.id).where(is_in(EnvelopeState.OPEN))).scalars())


def read_open_of_nodes(connection: sa.Connection) -> list[UUID]:
    """Read the envelopes that nodes have begun to emit and not ended."""
    of_node = model.emitter.c.kind == "node"
    statement = sa.select(model.envelope.c.id).join(model.emitter).where(of_node, is_in(EnvelopeState.OPEN))
    return list(connection.execute(statement).scalars())


def is_in(state: EnvelopeState) -> sa.ColumnElement[bool]:
    """Build the condition that an envelope is in a state, written out.

    SQLite uses a partial index only if it can see that the statement looks for nothing else.
    """
    return model.envelope.c.state == sa.literal_column(f"'{state.value}'")


def is_archived() -> sa.ColumnElement[bool]:
    """Build the condition that an envelope is in an archive, also if it was restored from there."""
    return sa.exists().where(model.archived_envelope.c.envelope_id == model.envelope.c.id)
