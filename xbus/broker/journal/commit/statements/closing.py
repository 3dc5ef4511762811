"""The end of an envelope: sealed, with its place in the log, or cancelled.

The rows of whole envelopes are written as they stay, by three statements for however many envelopes.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.commit.statements.emission import (
    INSERT_ENVELOPES,
    INSERT_EVENTS,
    INSERT_SEGMENTS,
    NO_SEGMENT,
    SMALL_BYTES,
    check_ids,
    copies,
    copy_segments,
    envelope_id_taken,
    event_id_taken,
)
from xbus.broker.journal.commit.statements.rows import (
    Driver,
    Prepared,
    Row,
    RowStatement,
    insert_rows,
    moment_text,
    update_rows,
    write_rows,
)
from xbus.broker.journal.commit.statements.stored import lasting_puts
from xbus.broker.journal.database.compression import OfEvent, compress
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.envelopes import read_cancel_reason
from xbus.broker.journal.log.segments import (
    LONE_SEGMENT,
    NO_SEGMENTS,
    Content,
    SegmentRow,
    content_hash,
    hash_opening,
    make_row,
)
from xbus.broker.journal.writes import GroupType, PutEnvelope, PutEvent, PutGroup, SealedGroup, SealReceipt
from xbus.errors import EnvelopeCancelled, EnvelopeIdTaken, JournalError
from xbus.headers import NO_TAGS, EventTags
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
RECEIVED = EnvelopeState.RECEIVED.value
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
    connection: sa.Connection, group: Sequence[writes.Seal | PutEnvelope | PutGroup]
) -> list[SealReceipt | SealedGroup]:
    """Receive envelopes in the order in which they came, be they here already or come as a whole."""
    driver = driver_of(connection)
    counts = [len(write.envelope_ids) if type(write) is PutGroup else 1 for write in group]
    positions = accumulate(counts, initial=next_positions(driver, sum(counts)).start)
    # By the position of each, or of its first envelope.
    of_kind: dict[type, dict[int, Any]] = {PutGroup: {}, PutEnvelope: {}, writes.Seal: {}}
    for position, write in zip(positions, group, strict=False):
        of_kind[type(write)][position] = write
    answers: dict[int, SealReceipt | SealedGroup] = {}
    if of_kind[PutGroup]:
        answers |= put_groups(driver, of_kind[PutGroup])
    if of_kind[PutEnvelope]:
        answers |= put(connection, of_kind[PutEnvelope])
    if of_kind[writes.Seal]:
        answers |= _seal_open(connection, of_kind[writes.Seal])
    return [*map(answers.__getitem__, sorted(answers))]


def next_positions(driver: Driver, envelopes: int) -> range:
    """The places in the log that so many envelopes get. From here to the end of the transaction no other gets one."""
    ((last,),) = _MOVE_HEAD.execute(driver, {"sealed": envelopes}).fetchall()
    return range(last - envelopes + 1, last + 1)


def _seal_open(connection: sa.Connection, seals: Mapping[int, writes.Seal]) -> dict[int, SealReceipt]:
    unknown = [write.envelope_id for write in seals.values() if write.content is None or not write.is_one_append]
    contents = _read_contents(connection, unknown) if unknown else {}
    receipts = {
        position: _known_receipt(write, position, write.content)
        if write.content is not None and write.is_one_append
        else _receipt(write, position, contents[write.envelope_id])
        for position, write in seals.items()
    }
    rows = [_received(receipts[position], write.at, write.content_hash) for position, write in seals.items()]
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


def _known_receipt(write: writes.Seal, position: int, content: PutGroup) -> writes.SealReceipt:
    """Make the receipt of an envelope whose items are one segment, as nothing of it has failed."""
    data, items = content.data[0], content.items[0]
    name, tags = content.types[0].hashed_name, content.tags[0]
    data_hash = sha256(data).digest() if data else b""
    if write.headers is None and tags is NO_TAGS:
        whole = sha256(name.encode() + b"\0" + items.to_bytes(8, "big") + data_hash).digest()
    else:
        whole = content_hash([Content(name, items, (data_hash,) if data else (), tags)], write.headers)
    return writes.SealReceipt(write.envelope_id, position, 1, items, len(data), whole)


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
        *(RECEIVED, at, receipt.position, receipt.events, receipt.items, receipt.data_bytes),
        *(receipt.hash, keyed_content, receipt.envelope_id),
    )


def _close_envelopes(connection: sa.Connection, statement: RowStatement, rows: Sequence[Row]) -> None:
    if statement.execute(connection, rows) != len(rows):
        # A group that fails is carried out anew, call by call: then it is known whose envelope is at fault.
        is_alone = len(rows) == 1 and connection.in_transaction()
        reason = read_cancel_reason(connection, cast(UUID, rows[0][-1])) if is_alone else None
        if reason is not None:
            raise EnvelopeCancelled(reason)
        ids = ", ".join(str(row[-1]) for row in rows[:3])
        raise JournalError(f"envelope {ids} is not there to be {rows[0][0]}")


# -- whole envelopes -------------------------------------------------------------------------------------------------

ASKED_AT_ONCE = 500
"""Ids about which one statement asks. More make fewer statements, and each longer."""


MOST_BEGINS = 64
"""The beginnings of hashes that are kept, as programs send the same types and headers again. More take memory."""

_SegmentInRow: TypeAlias = tuple[bytes | None, bytes | None, int | None]
"""The data, hash and plain bytes of a segment that lies in the row of its event."""

_COUNT = Struct(">Q").pack

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


def put(connection: sa.Connection, puts: Mapping[int, PutEnvelope]) -> dict[int, SealReceipt]:
    """Insert envelopes that are received at once, with all that they hold.

    Args:
        puts: by their positions in the log.

    Raises:
        EnvelopeIdTaken: there is an envelope of the id of one of them.
        EventIdTaken: another envelope has an event of an id in one of them.
    """
    group = [*puts.values()]
    receipts: dict[int, SealReceipt] = {}
    envelopes: list[Row] = []
    events: list[Row] = []
    segments: list[SegmentRow] = []
    for position, write in zip(puts, lasting_puts(connection, group), strict=True):
        own_segments = {event.event_id: _segment(event) for event in write.events if event.items}
        small = {event_id: segment for event_id, segment in own_segments.items() if _is_small(segment)}
        events += [
            _event_row(write, number, event, small.get(event.event_id))
            for number, event in enumerate(write.events, start=1)
        ]
        segments += [segment for event_id, segment in own_segments.items() if event_id not in small]
        receipts[position] = _put_receipt(write, position, own_segments)
        envelopes.append(_envelope_row(write, receipts[position]))
    driver = driver_of(connection)
    is_copied = copies(driver, segments)
    rows: list[tuple[RowStatement, Sequence[Row]]] = [(INSERT_ENVELOPES, envelopes), (INSERT_EVENTS, events)]
    if not is_copied:
        rows.append((INSERT_SEGMENTS, segments))

    def refuse(error: Exception) -> None:
        check_ids(error, group[0].envelope_id, [event.event_id for write in group for event in write.events])

    write_rows(driver, *[(statement, statement.plain(some)) for statement, some in rows if some], refuse=refuse)
    check_keys(driver, [write.envelope_id.hex for write in group if write.head.key is not None])
    if is_copied:
        copy_segments(driver, segments)
    return receipts


def _segment(event: PutEvent) -> SegmentRow:
    return make_row(event.event_id, 0, event.items, event.data, compressed=event.compress, stored=event.stored)


def _is_small(segment: SegmentRow) -> bool:
    """Check whether a segment lies in the row of its event."""
    return segment.store_id is None and len(segment.data) <= SMALL_BYTES


def _put_receipt(write: PutEnvelope, position: int, segments: Mapping[UUID, SegmentRow]) -> SealReceipt:
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


def put_groups(driver: Driver, groups: Mapping[int, PutGroup]) -> dict[int, SealedGroup]:
    """Insert the envelopes of groups that are received at once.

    Args:
        groups: by the positions of their first envelopes; the others follow.

    Raises:
        EnvelopeIdTaken: an envelope of one of the ids exists.
        EventIdTaken: another envelope has an event of one of the ids.
    """
    envelopes: list[Row] = []
    events: list[Row] = []
    segments: list[SegmentRow] = []
    keyed: list[str] = []
    sealed: dict[int, SealedGroup] = {}
    for first, group in groups.items():
        at, position, hashes = moment_text(group.at), first, []
        columns = (group.emitter_ids, group.envelope_ids, group.event_ids, group.types, group.items, group.data)
        # For few envelopes, iterators over columns take twice the time of this loop.
        for each in zip(*columns, group.heads, group.tags, strict=True):
            emitter_id, envelope_id, event_id, of_type, items, data, head, tags = each
            envelope, event = envelope_id.hex(), event_id.hex()
            type_id, _, hashed_name, graph_id, _ = of_type
            _, key, headers = head
            data_hash = sha256(data).digest() if data else b""
            if tags is NO_TAGS:
                # As ``content_hash``, whose call each envelope would pay for.
                before = b"" if headers is None else LONE_SEGMENT if data else NO_SEGMENTS
                whole = sha256(_hash_begin(headers, hashed_name) + _COUNT(items) + before + data_hash).digest()
            else:
                whole = content_hash([Content(hashed_name, items, (data_hash,) if data else (), tags)], headers)
            size = len(data)
            in_row: _SegmentInRow = data, data_hash, None
            if not 0 < size <= SMALL_BYTES:
                in_row = _in_row(event_id, of_type, items, data, data_hash, segments)
            # One segment, so the hash is also the one that does not depend on how it is cut.
            of_keyed = None if key is None else whole
            envelopes.append((envelope, emitter_id, at, *head, at, position, items, size, whole, of_keyed))
            events.append((event, envelope, type_id, graph_id, items, items, *tags, *in_row))
            hashes.append(whole)
            if key is not None:
                keyed.append(envelope)
            position += 1
        sealed[first] = SealedGroup(first, position - 1, group, hashes)
    _insert(driver, envelopes, events, segments, keyed)
    return sealed


@lru_cache(MOST_BEGINS)
def _hash_begin(headers: bytes | None, hashed_name: str) -> bytes:
    """Write what the hash of an envelope with one event begins with, up to the number of its items."""
    return (b"" if headers is None else hash_opening(headers)) + hashed_name.encode() + b"\0"


def _in_row(
    event_id: bytes, of_type: GroupType, items: int, data: bytes, data_hash: bytes, segments: list[SegmentRow]
) -> _SegmentInRow:
    """Keep the segment of an event in its row, or among ``segments``."""
    stored, plain_bytes = compress(data) if of_type.compress else (data, None)
    if 0 < len(stored) <= SMALL_BYTES:
        return (stored, data_hash, plain_bytes)
    if stored:
        segments.append(SegmentRow(UUID(bytes=event_id), 0, items, stored, data_hash, None, plain_bytes))
    return NO_SEGMENT


def _insert(
    driver: Driver,
    envelopes: Sequence[Row],
    events: Sequence[Row],
    segments: Sequence[SegmentRow],
    keyed: Sequence[str],
) -> None:
    def refuse(error: Exception) -> None:
        check_ids(error, UUID(str(envelopes[0][0])), [UUID(str(event_id)) for event_id, *_ in events])

    rows: list[tuple[RowStatement, Sequence[Row]]] = [(_PUT_ENVELOPES, envelopes), (_PUT_EVENTS, events)]
    is_copied = bool(segments) and copies(driver, segments)
    if segments and not is_copied:
        rows.append((INSERT_SEGMENTS, INSERT_SEGMENTS.plain(segments)))
    write_rows(driver, *rows, refuse=refuse, is_last=not keyed and not is_copied)
    if keyed:
        check_keys(driver, keyed)
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
    for some in portions(envelope_ids, ASKED_AT_ONCE):
        cursor = driver.cursor()
        places = ", ".join(("?" if isinstance(driver, sqlite3.Connection) else "%s",) * len(some))
        cursor.execute(f"SELECT envelope_id FROM spent_key WHERE envelope_id IN ({places})", some)
        for (taken,) in cursor.fetchall():
            raise EnvelopeIdTaken(f"there was an envelope {UUID(str(taken))}", "give each envelope a key of its own")


class TakenIds(NamedTuple):
    """The ids that are taken of whole envelopes that are to be received.

    Args:
        envelopes: with the columns of ``_TAKEN_ENVELOPES`` behind the id.
        events: the ids of events whose envelopes have a free id.
    """

    envelopes: Mapping[UUID, Sequence[Any]]
    events: frozenset[UUID]

    def in_group(self, group: PutGroup) -> dict[int, SealReceipt | None]:
        """Find the places of a group whose ids are taken, with the first receipts of exact repeats."""
        ids = zip(group.envelope_ids, group.event_ids, strict=True)
        return {
            place: self._first_receipt(group, place)
            for place, (envelope_id, event_id) in enumerate(ids)
            if UUID(bytes=envelope_id) in self.envelopes or UUID(bytes=event_id) in self.events
        }

    def _first_receipt(self, group: PutGroup, place: int) -> SealReceipt | None:
        """Give the receipt of the first time to an exact repeat; None to all others."""
        envelope_id, items, data = UUID(bytes=group.envelope_ids[place]), group.items[place], group.data[place]
        position, whole, *first = self.envelopes.get(envelope_id, (None, None))
        of_type, head = group.types[place], group.heads[place]
        if first != [group.emitter_ids[place], head.key, UUID(bytes=group.event_ids[place]), of_type.name]:
            return None
        segments = (sha256(data).digest(),) if data else ()
        content = Content(of_type.hashed_name, items, segments, group.tags[place])
        if content_hash([content], head.headers) != whole:
            return None
        return SealReceipt(envelope_id, position, 1, items, len(data), whole)

    def error_of(self, put: PutEnvelope) -> JournalError | None:
        """Say why an envelope can't be received; None where it can."""
        if put.envelope_id in self.envelopes:
            return envelope_id_taken(put.envelope_id)
        taken = [event.event_id for event in put.events if event.event_id in self.events]
        return event_id_taken(taken) if taken else None


def read_taken(connection: sa.Connection, groups: Sequence[PutGroup], puts: Sequence[PutEnvelope]) -> TakenIds:
    """Find the taken ids of all envelopes of groups and of others, by one question for each kind."""
    events_of = {
        UUID(bytes=envelope_id): [UUID(bytes=event_id)]
        for group in groups
        for envelope_id, event_id in zip(group.envelope_ids, group.event_ids, strict=True)
    }
    events_of |= {put.envelope_id: [event.event_id for event in put.events] for put in puts}
    envelopes = {
        envelope_id: first
        for some in portions([*events_of], ASKED_AT_ONCE)
        for envelope_id, *first in connection.execute(_TAKEN_ENVELOPES, {"ids": some})
    }
    event_ids = [each for envelope_id, own in events_of.items() if envelope_id not in envelopes for each in own]
    events = frozenset(
        found
        for some in portions(event_ids, ASKED_AT_ONCE)
        for (found,) in connection.execute(_TAKEN_EVENTS, {"ids": some})
    )
    return TakenIds(envelopes, events)


_IDS: sa.BindParameter[UUID] = sa.bindparam("ids", expanding=True)
_LONE_EVENT = sa.and_(
    model.event.c.envelope_id == model.envelope.c.id,
    model.event.c.number == 1,
    model.envelope.c.events == 1,
    model.envelope.c.pruned_at.is_(None),
)
"""Joins an envelope and its only event. It joins nothing to envelopes that are open, cancelled or removed."""
_SEALED = (
    *(model.envelope.c.position, model.envelope.c.hash, model.envelope.c.emitter_id, model.envelope.c.idempotency_key),
    *(model.event.c.id, model.event_type.c.name),
)
_SPENT_ID = model.spent_key.c.envelope_id
_TAKEN_ENVELOPES = sa.union_all(
    sa.select(model.envelope.c.id, *_SEALED)
    .outerjoin(model.event, _LONE_EVENT)
    .outerjoin(model.event_type, model.event_type.c.id == model.event.c.event_type_id)
    .where(model.envelope.c.id.in_(_IDS)),
    sa.select(_SPENT_ID, *[sa.null()] * len(_SEALED)).where(_SPENT_ID.in_(_IDS)),
)
_TAKEN_EVENTS = sa.select(model.event.c.id).where(model.event.c.id.in_(_IDS))
