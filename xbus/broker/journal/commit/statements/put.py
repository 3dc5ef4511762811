"""Whole envelopes: their rows are written as they stay, by three statements for however many envelopes."""

import sqlite3
from collections.abc import Mapping, Sequence
from hashlib import sha256
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.commit.statements.emission import (
    INSERT_ENVELOPES,
    INSERT_EVENTS,
    INSERT_SEGMENTS,
    INTEGRITY_ERRORS,
    NO_SEGMENT,
    SMALL_BYTES,
    check_ids,
    copies,
    copy_segments,
)
from xbus.broker.journal.commit.statements.rows import (
    Driver,
    Row,
    RowStatement,
    insert_rows,
    moment_text,
    write_rows,
)
from xbus.broker.journal.commit.statements.stored import lasting_puts
from xbus.broker.journal.database.compression import compress
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash, make_row
from xbus.broker.journal.writes import GroupType, PutEnvelope, PutEvent, PutGroup, SealedGroup, SealReceipt
from xbus.errors import EnvelopeIdTaken
from xbus.headers import NO_TAGS
from xbus.states import EnvelopeState

RECEIVED = EnvelopeState.RECEIVED.value

ASKED_AT_ONCE = 500
"""Ids about which one statement asks. More make fewer statements, and each longer."""


_PUT_ENVELOPES = insert_rows(
    "put_envelopes",
    model.envelope,
    [
        *("id", "emitter_id", "opened_at", *[column.name for column in model.ENVELOPE_HEAD], "closed_at"),
        *("position", "items", "bytes", "hash", "content_hash"),
    ],
    {"state": f"'{RECEIVED}'", "events": "1"},
)
_PUT_EVENTS = insert_rows(
    "put_events",
    model.event,
    [
        *("id", "envelope_id", "event_type_id", "graph_id", "estimate", "items"),
        *(*[column.name for column in model.EVENT_TAGS], "data", "data_hash", "plain_bytes"),
    ],
    {"number": "1"},
)


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
        own_segments = {event.event_id: _segment(event) for event in write.events if event.items}
        small = {event_id: segment for event_id, segment in own_segments.items() if _is_small(segment)}
        events += [
            _event_row(write, number, event, small.get(event.event_id))
            for number, event in enumerate(write.events, start=1)
        ]
        segments += [segment for event_id, segment in own_segments.items() if event_id not in small]
        receipt = _receipt(write, position, own_segments)
        receipts.append(receipt)
        envelopes.append(_envelope_row(write, receipt))
    driver = driver_of(connection)
    is_copied = copies(driver, segments)
    rows: list[tuple[RowStatement, Sequence[Row]]] = [(INSERT_ENVELOPES, envelopes), (INSERT_EVENTS, events)]
    if not is_copied:
        rows.append((INSERT_SEGMENTS, segments))
    try:
        write_rows(driver, *[(statement, statement.plain(some)) for statement, some in rows if some])
    except INTEGRITY_ERRORS as error:
        check_ids(error, group[0].envelope_id, [event.event_id for event in group[0].events] if len(group) == 1 else [])
        raise
    check_keys(driver, [write.envelope_id.hex for write in group if write.head.key is not None])
    if is_copied:
        copy_segments(driver, segments)
    return receipts


def _segment(event: PutEvent) -> SegmentRow:
    return make_row(event.event_id, 0, event.items, event.data, compressed=event.compress, stored=event.stored)


def _is_small(segment: SegmentRow) -> bool:
    """Check whether a segment lies in the row of its event."""
    return segment.store_id is None and len(segment.data) <= SMALL_BYTES


def _receipt(write: PutEnvelope, position: int, segments: Mapping[UUID, SegmentRow]) -> SealReceipt:
    hashes = {event_id: (segment.hash,) for event_id, segment in segments.items()}
    contents = [
        Content(event.hashed_name, event.items, hashes.get(event.event_id, ()), event.tags) for event in write.events
    ]
    items = sum([event.items for event in write.events])
    whole = content_hash(contents, write.head.headers)
    return SealReceipt(write.envelope_id, position, len(contents), items, write.size, whole)


def _envelope_row(write: PutEnvelope, receipt: SealReceipt) -> Row:
    return (
        *(write.envelope_id, write.emitter_id, RECEIVED, write.at),
        *(*write.head, write.at),
        *(receipt.position, receipt.events, receipt.items, receipt.data_bytes, receipt.hash),
        # Each of its events is one segment, so its hash is also the one that does not depend on how they are cut.
        None if write.head.key is None else receipt.hash,
    )


def _event_row(write: PutEnvelope, number: int, event: PutEvent, small: SegmentRow | None) -> Row:
    ids = (event.event_id, write.envelope_id, number, event.event_type_id, event.graph_id)
    segment = NO_SEGMENT if small is None else (small.data, small.hash, small.plain_bytes)
    return (*ids, event.items, event.items, *event.tags, *segment)


def put_groups(driver: Driver, groups: Sequence[PutGroup], firsts: Sequence[int]) -> list[SealedGroup]:
    """Insert the envelopes of groups that are received at once.

    Args:
        firsts: the position of the first envelope of each group; the others follow.

    Raises:
        EnvelopeIdTaken: an envelope of one of the ids exists.
        EventIdTaken: another envelope has an event of one of the ids; told only of a group of one that is alone.
    """
    envelopes: list[Row] = []
    events: list[Row] = []
    segments: list[SegmentRow] = []
    keyed: list[str] = []
    sealed: list[SealedGroup] = []
    for group, first in zip(groups, firsts, strict=True):
        at = moment_text(group.at)
        hashes: list[bytes] = []
        known: GroupType | None = None
        columns = (
            *(group.envelope_ids, group.event_ids, group.emitter_ids, group.types),
            *(group.items, group.data, group.heads, group.tags),
        )
        for position, (id_bytes, event_bytes, emitter_id, of_type, items, data, head, tags) in enumerate(
            zip(*columns, strict=True), first
        ):
            if of_type is not known:
                known = of_type
                type_id, _, hashed_name, graph_id, is_compressed = of_type
                name = hashed_name.encode() + b"\0"
            envelope_id, event_id = id_bytes.hex(), event_bytes.hex()
            ordering_key, key, headers = head
            data_hash = sha256(data).digest() if data else b""
            if headers is None and tags is NO_TAGS:
                whole = sha256(name + items.to_bytes(8, "big") + data_hash).digest()
            else:
                whole = content_hash([Content(hashed_name, items, (data_hash,) if data else (), tags)], headers)
            hashes.append(whole)
            if key is not None:
                keyed.append(envelope_id)
            # One segment, so the hash is also the one that does not depend on how it is cut.
            totals = (position, items, len(data), whole, None if key is None else whole)
            envelopes.append((envelope_id, emitter_id, at, ordering_key, key, headers, at, *totals))
            stored, plain_bytes = compress(data) if is_compressed else (data, None)
            if len(stored) > SMALL_BYTES:
                segments.append(SegmentRow(UUID(bytes=event_bytes), 0, items, stored, data_hash, None, plain_bytes))
            in_event = (stored, data_hash, plain_bytes) if 0 < len(stored) <= SMALL_BYTES else NO_SEGMENT
            events.append((event_id, envelope_id, type_id, graph_id, items, items, *tags, *in_event))
        sealed.append(SealedGroup(first, first + len(hashes) - 1, group, hashes))
    _insert(driver, envelopes, events, segments)
    if keyed:
        check_keys(driver, keyed)
    return sealed


def _insert(driver: Driver, envelopes: Sequence[Row], events: Sequence[Row], segments: Sequence[SegmentRow]) -> None:
    rows: list[tuple[RowStatement, Sequence[Row]]] = [(_PUT_ENVELOPES, envelopes), (_PUT_EVENTS, events)]
    is_copied = bool(segments) and copies(driver, segments)
    if segments and not is_copied:
        rows.append((INSERT_SEGMENTS, INSERT_SEGMENTS.plain(segments)))
    try:
        write_rows(driver, *rows)
    except INTEGRITY_ERRORS as error:
        (envelope_id, *_), (event_id, *_) = envelopes[0], events[0]
        check_ids(error, UUID(str(envelope_id)), [UUID(str(event_id))] if len(envelopes) == 1 else [])
        raise
    if is_copied:
        copy_segments(driver, segments)


def check_keys(driver: Driver, envelope_ids: Sequence[str]) -> None:
    """Let envelopes with keys pass that were just inserted.

    Asked before that, nobody would see the key of an envelope that retention removes meanwhile.

    Args:
        envelope_ids: as 32 hexadecimal digits.

    Raises:
        EnvelopeIdTaken: the key of one of them stands for an envelope that was removed.
    """
    mark = "?" if isinstance(driver, sqlite3.Connection) else "%s"
    for some in portions(envelope_ids, ASKED_AT_ONCE):
        cursor = driver.cursor()
        places = ", ".join((mark,) * len(some))
        cursor.execute(f"SELECT envelope_id FROM spent_key WHERE envelope_id IN ({places})", some)
        for (taken,) in cursor.fetchall():
            raise EnvelopeIdTaken(f"there was an envelope {UUID(str(taken))}", "give each envelope a key of its own")


def leave_taken(connection: sa.Connection, groups: Sequence[PutGroup]) -> list[tuple[PutGroup, frozenset[int]]]:
    """Find the envelopes of groups whose ids, or those of their events, are taken.

    Returns:
        For each group the one without them, and their places in it.
    """
    taken = {
        column: {
            each.bytes
            for some in portions(
                [UUID(bytes=each) for group in groups for each in getattr(group, column)], ASKED_AT_ONCE
            )
            for (each,) in connection.execute(statement, {"ids": some})
        }
        for column, statement in (("envelope_ids", _TAKEN_ENVELOPES), ("event_ids", _TAKEN_EVENTS))
    }
    found = []
    for group in groups:
        places = frozenset(
            place
            for place, (envelope_id, event_id) in enumerate(zip(group.envelope_ids, group.event_ids, strict=True))
            if envelope_id in taken["envelope_ids"] or event_id in taken["event_ids"]
        )
        free = [place for place in range(len(group)) if place not in places]
        found.append((group.at_places(free), places))
    return found


_IDS: sa.BindParameter[UUID] = sa.bindparam("ids", expanding=True)
_SPENT = sa.select(model.spent_key.c.envelope_id).where(model.spent_key.c.envelope_id.in_(_IDS))
_TAKEN_ENVELOPES = sa.union_all(sa.select(model.envelope.c.id).where(model.envelope.c.id.in_(_IDS)), _SPENT)
_TAKEN_EVENTS = sa.select(model.event.c.id).where(model.event.c.id.in_(_IDS))
