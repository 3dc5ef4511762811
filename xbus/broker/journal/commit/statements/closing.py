"""The end of an envelope: sealed, with its place in the log, or cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import exactly_one, remember
from xbus.broker.journal.log.segments import content_hash
from xbus.errors import JournalError
from xbus.states import ENVELOPE_MOVES, EnvelopeState, predecessors

_MOVE_HEAD = (
    sa.update(model.head).values(position=model.head.c.position + bindparam("sealed")).returning(model.head.c.position)
)
_CONTENT = (
    sa.select(
        model.event.c.envelope_id,
        model.event.c.id,
        model.event_type.c.name,
        model.event.c["items"],
        model.segment.c.hash,
        model.segment.c["items"].label("segment_items"),
        sa.func.length(model.segment.c.data).label("segment_bytes"),
    )
    .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
    .outerjoin(model.segment, model.segment.c.event_id == model.event.c.id)
    .where(model.event.c.envelope_id.in_(bindparam("envelope_ids", expanding=True)))
    .order_by(model.event.c.envelope_id, model.event.c.number, model.segment.c.first_index)
)
_CLOSE_ENVELOPE = sa.update(model.envelope).where(
    model.envelope.c.id == bindparam("envelope_id"),
    model.envelope.c.state.in_(bindparam("from_states", expanding=True)),
)
_SEAL_ENVELOPE = _CLOSE_ENVELOPE.values(
    state=EnvelopeState.RECEIVED.value,
    closed_at=bindparam("at"),
    position=bindparam("new_position"),
    events=bindparam("event_count"),
    items=bindparam("item_count"),
    bytes=bindparam("byte_count"),
    hash=bindparam("content"),
    content_hash=bindparam("keyed_content"),
)
_CANCEL_ENVELOPE = _CLOSE_ENVELOPE.values(state=EnvelopeState.CANCELLED.value, closed_at=bindparam("at"))


@dataclass(slots=True)
class _EventContent:
    type_name: str
    items: int
    hashes: list[bytes] = field(default_factory=list)
    stored_items: int = 0
    data_bytes: int = 0


def _read_contents(connection: sa.Connection, envelope_ids: list[UUID]) -> dict[UUID, dict[UUID, _EventContent]]:
    contents: dict[UUID, dict[UUID, _EventContent]] = {envelope_id: {} for envelope_id in envelope_ids}
    for row in connection.execute(_CONTENT, {"envelope_ids": envelope_ids}):
        envelope_id, event_id, type_name, items, segment_hash, segment_items, segment_bytes = row
        if items is None:
            raise JournalError(f"event {event_id} is still open")
        event = contents[envelope_id].setdefault(event_id, _EventContent(type_name, items))
        if segment_hash is not None:
            event.hashes.append(segment_hash)
            event.stored_items += segment_items
            event.data_bytes += segment_bytes
    return contents


def seal(connection: sa.Connection, group: Sequence[writes.Seal]) -> list[writes.SealReceipt]:
    contents = _read_contents(connection, [write.envelope_id for write in group])
    return [
        _seal_one(connection, write, position, contents[write.envelope_id])
        for position, write in zip(next_positions(connection, len(group)), group, strict=True)
    ]


def next_positions(connection: sa.Connection, envelopes: int) -> range:
    """The places in the log that so many envelopes get; from here to the end of the transaction no other gets one."""
    last: int = connection.execute(_MOVE_HEAD, {"sealed": envelopes}).scalar_one()
    return range(last - envelopes + 1, last + 1)


def _seal_one(
    connection: sa.Connection, write: writes.Seal, position: int, content: dict[UUID, _EventContent]
) -> writes.SealReceipt:
    events = list(content.values())
    for event_id, event in content.items():
        if event.stored_items != event.items:
            raise JournalError(f"event {event_id} ended with {event.items} items and holds {event.stored_items}")
    if (len(events), sum(event.items for event in events)) != (write.events, write.items):
        raise JournalError(f"envelope {write.envelope_id} does not hold its {write.events} events, {write.items} items")
    receipt = writes.SealReceipt(
        write.envelope_id,
        position,
        len(events),
        sum(event.items for event in events),
        sum(event.data_bytes for event in events),
        content_hash(events),
    )
    receive(connection, receipt, write.at, write.content_hash)
    return receipt


def receive(
    connection: sa.Connection, receipt: writes.SealReceipt, at: datetime, keyed_content: bytes | None = None
) -> None:
    """Have an open envelope received as its receipt says.

    Args:
        keyed_content: its hash however it is cut into segments, where it has an idempotency key.

    Raises:
        JournalError: it is not there, or not open.
    """
    values = {
        "new_position": receipt.position,
        "event_count": receipt.events,
        "item_count": receipt.items,
        "byte_count": receipt.data_bytes,
        "content": receipt.hash,
        "keyed_content": keyed_content,
    }
    _close_envelope(connection, _SEAL_ENVELOPE, receipt.envelope_id, at, EnvelopeState.RECEIVED, values)


def cancel(connection: sa.Connection, group: Sequence[writes.Cancel]) -> None:
    for write in group:
        _close_envelope(connection, _CANCEL_ENVELOPE, write.envelope_id, write.at, EnvelopeState.CANCELLED, {})
        remember(connection, write.at, "envelope", str(write.envelope_id), EnvelopeState.CANCELLED, write.reason)


def _close_envelope(
    connection: sa.Connection,
    statement: sa.Update,
    envelope_id: UUID,
    at: datetime,
    state: EnvelopeState,
    values: dict[str, Any],
) -> None:
    from_states = [old.value for old in predecessors(ENVELOPE_MOVES, state)]
    values |= {"envelope_id": envelope_id, "from_states": from_states, "at": at}
    exactly_one(connection.execute(statement, values), f"envelope {envelope_id} is not there to be {state}")
