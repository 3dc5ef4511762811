"""Whole envelopes: their rows are written as they stay, by three statements for however many envelopes."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, chain
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
    are_large,
    check_ids,
    copy_segments,
    insert_segments,
)
from xbus.broker.journal.commit.statements.rows import Columns, Row, write_columns, write_together
from xbus.broker.journal.commit.statements.stored import lasting_puts
from xbus.broker.journal.database.compression import compress
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash, make_row
from xbus.broker.journal.writes import GroupType, PutEnvelope, PutEvent, PutGroup, SealedGroup, SealReceipt
from xbus.envelope import EnvelopeHead
from xbus.errors import EnvelopeIdTaken
from xbus.headers import NO_TAGS, EventTags
from xbus.states import EnvelopeState

RECEIVED = EnvelopeState.RECEIVED.value

ASKED_AT_ONCE = 500
"""Ids about which one statement asks. More make fewer statements, and each longer."""


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
    together, large = ((), segments) if are_large(segments) else (segments, ())
    try:
        write_together(connection, (INSERT_ENVELOPES, envelopes), (INSERT_EVENTS, events), (INSERT_SEGMENTS, together))
    except INTEGRITY_ERRORS as error:
        check_ids(error, group[0].envelope_id, [event.event_id for event in group[0].events] if len(group) == 1 else [])
        raise
    check_keys(connection, [write.envelope_id for write in group if write.head.key is not None])
    insert_segments(connection, large)
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


def put_groups(connection: sa.Connection, groups: Sequence[PutGroup], firsts: Sequence[int]) -> list[SealedGroup]:
    """Insert the envelopes of groups that are received at once.

    Args:
        firsts: the position of the first envelope of each group; the others follow.

    Raises:
        EnvelopeIdTaken: an envelope of one of the ids exists.
        EventIdTaken: another envelope has an event of one of the ids; told only of a group of one that is alone.
    """
    whole = groups[0] if len(groups) == 1 else _joined(groups)
    ids, event_ids, types, counts = whole.envelope_ids, whole.event_ids, whole.types, whole.items
    heads, tags, data = whole.heads, whole.tags, whole.data
    segment_hashes = [sha256(each).digest() if each else b"" for each in data]
    hashes = _hashes(types, counts, segment_hashes, heads, tags)
    stored, plain_sizes = _stored(types, data)
    sizes = [len(group.envelope_ids) for group in groups]
    moments = [*chain.from_iterable([[group.at] * size for group, size in zip(groups, sizes, strict=True)])]
    positions = [*chain.from_iterable([range(first, first + size) for first, size in zip(firsts, sizes, strict=True)])]
    number = len(ids)
    ones = [1] * number
    ordering_keys, keys, headers = zip(*heads, strict=True)
    type_ids, _, _, graph_ids, _ = zip(*types, strict=True)
    # One segment each, so the hash is also the one that does not depend on how it is cut.
    keyed = [None if key is None else hashed for key, hashed in zip(keys, hashes, strict=True)]
    envelopes: Columns = (
        *(ids, whole.emitter_ids, [RECEIVED] * number, moments, ordering_keys, keys, headers),
        *(moments, positions, ones, counts, [*map(len, data)], hashes, keyed),
    )
    events: Columns = (event_ids, ids, ones, type_ids, graph_ids, counts, counts, *zip(*tags, strict=True))
    small, segments = _laid_out(event_ids, counts, (stored, segment_hashes, plain_sizes))
    writes = [(INSERT_ENVELOPES, envelopes), (INSERT_EVENTS, (*events, *small))]
    is_copied = connection.dialect.name == "postgresql" and are_large(segments)
    if segments and not is_copied:
        writes.append((INSERT_SEGMENTS, tuple(zip(*segments, strict=True))))
    try:
        write_columns(connection, *writes)
    except INTEGRITY_ERRORS as error:
        check_ids(error, UUID(bytes=ids[0]), [UUID(bytes=event_ids[0])] if number == 1 else [])
        raise
    if keys.count(None) < number:
        check_keys(connection, [UUID(bytes=each) for each, key in zip(ids, keys, strict=True) if key is not None])
    if is_copied:
        copy_segments(connection, segments)
    ends = accumulate(sizes)
    return [
        SealedGroup(first, group, hashes[end - size : end])
        for group, first, size, end in zip(groups, firsts, sizes, ends, strict=True)
    ]


def _laid_out(
    event_ids: Sequence[bytes],
    counts: Sequence[int],
    stored: tuple[Sequence[bytes], Sequence[bytes], Sequence[int | None]],
) -> tuple[Columns, list[SegmentRow]]:
    """Part the segments that lie in the rows of their events from those with rows of their own.

    Args:
        stored: the columns of data, hash and size of the plain data.
    """
    data = stored[0]
    if 0 not in counts and max(map(len, data)) <= SMALL_BYTES:
        return stored, []
    segments = [
        SegmentRow(UUID(bytes=event_id), 0, items, each, hashed, None, plain_bytes)
        for event_id, items, each, hashed, plain_bytes in zip(event_ids, counts, *stored, strict=True)
        if len(each) > SMALL_BYTES
    ]
    in_events = [0 < len(each) <= SMALL_BYTES for each in data]
    small = [[value if lies else None for value, lies in zip(column, in_events, strict=True)] for column in stored]
    return small, segments


def _joined(groups: Sequence[PutGroup]) -> PutGroup:
    """Join the columns of groups; the moment is that of the first."""
    return PutGroup(
        [*chain.from_iterable([group.emitter_ids for group in groups])],
        groups[0].at,
        [*chain.from_iterable([group.envelope_ids for group in groups])],
        [*chain.from_iterable([group.event_ids for group in groups])],
        [*chain.from_iterable([group.types for group in groups])],
        [*chain.from_iterable([group.items for group in groups])],
        [*chain.from_iterable([group.data for group in groups])],
        [*chain.from_iterable([group.heads for group in groups])],
        [*chain.from_iterable([group.tags for group in groups])],
        sum([group.size for group in groups]),
    )


def _hashes(
    types: Sequence[GroupType],
    counts: Sequence[int],
    segment_hashes: Sequence[bytes],
    heads: Sequence[EnvelopeHead],
    tags: Sequence[EventTags],
) -> list[bytes]:
    """Hash envelopes as ``content_hash`` does, without a call for each that has no headers."""
    names = {each: each.hashed_name.encode() + b"\0" for each in set(types)}
    return [
        sha256(names[of_type] + items.to_bytes(8, "big") + hashed).digest()
        if head.headers is None and of_event is NO_TAGS
        else content_hash([Content(of_type.hashed_name, items, (hashed,) if hashed else (), of_event)], head.headers)
        for of_type, items, hashed, head, of_event in zip(types, counts, segment_hashes, heads, tags, strict=True)
    ]


def _stored(types: Sequence[GroupType], data: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[int | None]]:
    """Give the data as it is stored, and the size of the plain data where it is compressed."""
    if True not in {each.compress for each in types}:
        return data, [None] * len(data)
    pairs = [compress(each) if of_type.compress else (each, None) for of_type, each in zip(types, data, strict=True)]
    return [each for each, _ in pairs], [size for _, size in pairs]


def check_keys(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> None:
    """Let envelopes with keys pass that were just inserted.

    Asked before that, nobody would see the key of an envelope that retention removes meanwhile.

    Raises:
        EnvelopeIdTaken: the key of one of them stands for an envelope that was removed.
    """
    for some in portions(envelope_ids, ASKED_AT_ONCE):
        taken = connection.execute(_SPENT, {"ids": some}).scalars().first()
        if taken is not None:
            raise EnvelopeIdTaken(f"there was an envelope {taken}", "give each envelope a key of its own")


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
