"""The end of an envelope: sealed, with its place in the log, or cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.commit.statements.put import put, put_groups
from xbus.broker.journal.commit.statements.rows import Driver, Prepared, Row, RowStatement, update_rows
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.log.envelopes import read_cancel_reason
from xbus.broker.journal.log.segments import content_hash
from xbus.errors import EnvelopeCancelled, JournalError
from xbus.headers import EventTags
from xbus.states import EnvelopeState

_MOVE_HEAD = Prepared(
    sa.update(model.head).values(position=model.head.c.position + bindparam("sealed")).returning(model.head.c.position)
)
_CONTENT = (
    sa.select(
        model.event.c.envelope_id,
        model.event.c.id,
        model.event_type.c.first_name,
        model.event.c["items"],
        model.event.c.headers,
        model.event.c.partition_key,
        model.segment.c.hash,
        model.segment.c["items"].label("segment_items"),
        OfEvent().size.label("segment_bytes"),
    )
    .join(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
    .outerjoin(model.segment, model.segment.c.event_id == model.event.c.id)
    .where(model.event.c.envelope_id.in_(bindparam("envelope_ids", expanding=True)))
    .order_by(model.event.c.envelope_id, model.event.c.number, model.segment.c.first_index)
)
_STILL_OPEN = f"state = '{EnvelopeState.OPEN.value}'"
_SEAL_ENVELOPES = update_rows(
    "seal_envelopes",
    model.envelope,
    ["state", "closed_at", "position", "events", "items", "bytes", "hash", "content_hash"],
    "id",
    _STILL_OPEN,
)
_CANCEL_ENVELOPES = update_rows("cancel_envelopes", model.envelope, ["state", "closed_at"], "id", _STILL_OPEN)


@dataclass(slots=True)
class _EventContent:
    hashed_name: str
    items: int
    tags: EventTags
    hashes: list[bytes] = field(default_factory=list)
    stored_items: int = 0
    data_bytes: int = 0


def seal(
    connection: sa.Connection, group: Sequence[writes.Seal | writes.PutEnvelope | writes.PutGroup]
) -> list[writes.SealReceipt | writes.SealedGroup]:
    """Receive envelopes in the order in which they came, be they here already or come as a whole."""
    # By their places behind the end of the log.
    groups: dict[int, writes.PutGroup] = {}
    puts: dict[int, writes.PutEnvelope] = {}
    seals: dict[int, writes.Seal] = {}
    places: list[int] = []
    count = 0
    for write in group:
        places.append(count)
        if isinstance(write, writes.PutGroup):
            groups[count] = write
            count += len(write.envelope_ids)
            continue
        if isinstance(write, writes.PutEnvelope):
            puts[count] = write
        else:
            seals[count] = write
        count += 1
    driver = driver_of(connection)
    position_of = next_positions(driver, count).__getitem__
    answers: dict[int, writes.SealReceipt | writes.SealedGroup] = {}
    if groups:
        answers |= zip(groups, put_groups(driver, [*groups.values()], [*map(position_of, groups)]), strict=True)
    if puts:
        answers |= zip(puts, put(connection, [*puts.values()], [*map(position_of, puts)]), strict=True)
    if seals:
        placed = [(position_of(place), write) for place, write in seals.items()]
        answers |= zip(seals, _seal_open(connection, placed), strict=True)
    return [*map(answers.__getitem__, places)]


def next_positions(driver: Driver, envelopes: int) -> range:
    """The places in the log that so many envelopes get; from here to the end of the transaction no other gets one."""
    ((last,),) = _MOVE_HEAD.execute(driver, {"sealed": envelopes}).fetchall()
    return range(last - envelopes + 1, last + 1)


def _seal_open(connection: sa.Connection, placed: Sequence[tuple[int, writes.Seal]]) -> list[writes.SealReceipt]:
    contents = _read_contents(connection, [write.envelope_id for _, write in placed])
    receipts = [_receipt(write, position, contents[write.envelope_id]) for position, write in placed]
    rows = [
        _received(receipt, write.at, write.content_hash) for receipt, (_, write) in zip(receipts, placed, strict=True)
    ]
    _close_envelopes(connection, _SEAL_ENVELOPES, rows)
    return receipts


def _read_contents(connection: sa.Connection, envelope_ids: list[UUID]) -> dict[UUID, dict[UUID, _EventContent]]:
    contents: dict[UUID, dict[UUID, _EventContent]] = {envelope_id: {} for envelope_id in envelope_ids}
    for row in connection.execute(_CONTENT, {"envelope_ids": envelope_ids}):
        envelope_id, event_id, hashed_name, items, *tags, segment_hash, segment_items, segment_bytes = row
        if items is None:
            raise JournalError(f"event {event_id} is still open")
        event = contents[envelope_id].setdefault(event_id, _EventContent(hashed_name, items, EventTags(*tags)))
        if segment_hash is not None:
            event.hashes.append(segment_hash)
            event.stored_items += segment_items
            event.data_bytes += segment_bytes
    return contents


def _receipt(write: writes.Seal, position: int, content: dict[UUID, _EventContent]) -> writes.SealReceipt:
    events = list(content.values())
    for event_id, event in content.items():
        if event.stored_items != event.items:
            raise JournalError(f"event {event_id} ended with {event.items} items and holds {event.stored_items}")
    if (len(events), sum(event.items for event in events)) != (write.events, write.items):
        raise JournalError(f"envelope {write.envelope_id} does not hold its {write.events} events, {write.items} items")
    return writes.SealReceipt(
        write.envelope_id,
        position,
        len(events),
        sum(event.items for event in events),
        sum(event.data_bytes for event in events),
        content_hash(events, write.headers),
    )


def receive(connection: sa.Connection, receipt: writes.SealReceipt, at: datetime) -> None:
    """Have an open envelope received as its receipt says.

    Raises:
        JournalError: it is not there, or not open.
    """
    _close_envelopes(connection, _SEAL_ENVELOPES, [_received(receipt, at, None)])


def cancel(connection: sa.Connection, group: Sequence[writes.Cancel]) -> None:
    _close_envelopes(connection, _CANCEL_ENVELOPES, [_cancelled(write) for write in group])
    for write in group:
        remember(connection, write.at, "envelope", str(write.envelope_id), EnvelopeState.CANCELLED, write.reason)


def _cancelled(write: writes.Cancel) -> Row:
    return (EnvelopeState.CANCELLED.value, write.at, write.envelope_id)


def _received(receipt: writes.SealReceipt, at: datetime, keyed_content: bytes | None) -> Row:
    """A row of ``_SEAL_ENVELOPES``.

    Args:
        keyed_content: its hash however it is cut into segments, where it has an idempotency key.
    """
    return (
        *(EnvelopeState.RECEIVED.value, at, receipt.position, receipt.events, receipt.items, receipt.data_bytes),
        *(receipt.hash, keyed_content, receipt.envelope_id),
    )


def _close_envelopes(connection: sa.Connection, statement: RowStatement, rows: Sequence[Row]) -> None:
    if statement.execute(connection, rows) != len(rows):
        # A group that fails is carried out anew, call by call: then it is known whose envelope is at fault.
        reason = read_cancel_reason(connection, cast(UUID, rows[0][-1])) if len(rows) == 1 else None
        if reason is not None:
            raise EnvelopeCancelled(reason)
        ids = ", ".join(str(row[-1]) for row in rows[:3])
        raise JournalError(f"envelope {ids} is not there to be {rows[0][0]}")
