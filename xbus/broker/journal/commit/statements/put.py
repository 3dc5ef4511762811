"""Whole envelopes: their rows are written as they stay, by three statements for however many envelopes."""

from collections.abc import Sequence

import sqlalchemy as sa

from xbus.broker.journal.commit.statements.emission import (
    INSERT_ENVELOPES,
    INSERT_EVENTS,
    INSERT_SEGMENTS,
    are_large,
    ids_taken,
    insert_segments,
)
from xbus.broker.journal.commit.statements.rows import Row, write_together
from xbus.broker.journal.commit.statements.stored import lasting_puts
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash, make_row
from xbus.broker.journal.writes import PutEnvelope, PutEvent, SealReceipt
from xbus.states import EnvelopeState


def put(connection: sa.Connection, group: Sequence[PutEnvelope], positions: Sequence[int]) -> list[SealReceipt]:
    """Insert envelopes that are received at once, with all that they hold.

    Args:
        positions: their places in the log.

    Raises:
        EnvelopeIdTaken: there is an envelope of the id of one of them.
        EventIdTaken: another envelope has an event of an id in one that is alone.
    """
    receipts: list[SealReceipt] = []
    envelopes: list[Row] = []
    events: list[Row] = []
    segments: list[SegmentRow] = []
    for write, position in zip(lasting_puts(connection, group), positions, strict=True):
        own_segments = [_segment(event) for event in write.events if event.items]
        events += [_event_row(write, number, event) for number, event in enumerate(write.events, start=1)]
        segments += own_segments
        receipt = _receipt(write, position, own_segments)
        receipts.append(receipt)
        envelopes.append(_envelope_row(write, receipt))
    with ids_taken(group[0].envelope_id, [event.event_id for event in group[0].events] if len(group) == 1 else []):
        small, large = ((), segments) if are_large(segments) else (segments, ())
        write_together(connection, (INSERT_ENVELOPES, envelopes), (INSERT_EVENTS, events), (INSERT_SEGMENTS, small))
    insert_segments(connection, large)
    return receipts


def _segment(event: PutEvent) -> SegmentRow:
    return make_row(event.event_id, 0, event.items, event.data, compressed=event.compress, stored=event.stored)


def _receipt(write: PutEnvelope, position: int, segments: Sequence[SegmentRow]) -> SealReceipt:
    hashes = {segment.event_id: (segment.hash,) for segment in segments}
    contents = [
        Content(event.hashed_name, event.items, hashes.get(event.event_id, ()), event.tags) for event in write.events
    ]
    items = sum([event.items for event in write.events])
    whole = content_hash(contents, write.headers)
    return SealReceipt(write.envelope_id, position, len(contents), items, write.size, whole)


def _envelope_row(write: PutEnvelope, receipt: SealReceipt) -> Row:
    return (
        *(write.envelope_id, write.emitter_id, EnvelopeState.RECEIVED.value, write.at),
        *(write.ordering_key, write.idempotency_key, write.headers, write.at),
        *(receipt.position, receipt.events, receipt.items, receipt.data_bytes, receipt.hash),
        # Each of its events is one segment, so its hash is also the one that does not depend on how they are cut.
        None if write.idempotency_key is None else receipt.hash,
    )


def _event_row(write: PutEnvelope, number: int, event: PutEvent) -> Row:
    ids = (event.event_id, write.envelope_id, number, event.event_type_id, event.graph_id)
    return (*ids, event.items, event.items, *event.tags)
