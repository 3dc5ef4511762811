"""Reads all envelopes with their events and segments, and computes counts and hashes anew."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.records import read_stored, stored_row
from xbus.broker.journal.bulk.outputs import BEGINNING, read_output, read_totals
from xbus.broker.journal.database.compression import PLAIN_SIZE, OfEvent
from xbus.broker.journal.database.paging import pages
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash
from xbus.broker.journal.objects.reading import SegmentData, segment_data
from xbus.broker.journal.writes.bulk import Place
from xbus.errors import JournalError, JournalUnavailable
from xbus.headers import EventTags
from xbus.ids import keyed_envelope_id, numbered_event_id
from xbus.states import AttemptState, EnvelopeState

# -- items -------------------------------------------------------------------------------------------------------------
# Walks the items of a segment by their lengths; nobody opens an item. Pure.
#
# An item is a msgpack bin: a mark, the number of its bytes in one, two or four bytes, and these bytes. See
# https://github.com/msgpack/msgpack/blob/master/spec.md#bin-format-family.

LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""The number of bytes of length that follow a mark."""


def has_items(data: bytes, items: int) -> bool:
    """Check whether data is exactly so many items, one after the other.

    Example:
        >>> has_items(b"\\xc4\\x01a\\xc4\\x00", 2)
        True
    """
    place = 0
    for _ in range(items):
        width = LENGTH_BYTES.get(data[place]) if place < len(data) else None
        if width is None:
            return False
        start = place + 1 + width
        place = start + int.from_bytes(data[place + 1 : start], "big")
    return place == len(data) and items >= 0


PAGE_ENVELOPES = 100
PAGE_EVENTS = 1_000
PAGE_BYTES = 8 * 1024 * 1024
"""Envelopes, events and bytes that are read at once. More are faster, and take more memory."""

MOST_GENERATIONS = 1_000
"""Envelopes under one key that may have been cancelled before the one that counts."""

_EVENT, _SEGMENT, _ARCHIVED = model.event.c, model.log_segment.c, model.archived_envelope.c
_OF_EVENT = OfEvent()
_IS_AWAY = sa.and_(_ARCHIVED.envelope_id.is_not(None), _ARCHIVED.restored_at.is_(None))
_ENVELOPES = (
    sa.select(model.envelope, _IS_AWAY.label("is_away"))
    .outerjoin(model.archived_envelope, _ARCHIVED.envelope_id == model.envelope.c.id)
    .where(model.envelope.c.id > sa.bindparam("after"))
    .order_by(model.envelope.c.id)
    .limit(PAGE_ENVELOPES)
)
_EVENT_COUNTS = (
    sa.select(_EVENT.envelope_id, sa.func.count())
    .where(_EVENT.envelope_id.in_(sa.bindparam("ids", expanding=True)))
    .group_by(_EVENT.envelope_id)
)
_ORIGIN = model.event.alias("origin")
_ORIGIN_ENVELOPE = model.envelope.alias("origin_envelope")
_EVENTS = (
    sa.select(
        model.event,
        model.event_type.c.first_name,
        model.graph.c.event_type_id.label("type_of_graph"),
        sa.or_(_IS_AWAY, _ORIGIN_ENVELOPE.c.pruned_at.is_not(None)).label("origin_is_away"),
    )
    .outerjoin(model.event_type, model.event_type.c.id == _EVENT.event_type_id)
    .outerjoin(model.graph, model.graph.c.id == _EVENT.graph_id)
    .outerjoin(_ORIGIN, _ORIGIN.c.id == _EVENT.origin_id)
    .outerjoin(_ORIGIN_ENVELOPE, _ORIGIN_ENVELOPE.c.id == _ORIGIN.c.envelope_id)
    .outerjoin(model.archived_envelope, _ARCHIVED.envelope_id == _ORIGIN.c.envelope_id)
    .where(_EVENT.envelope_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_EVENT.envelope_id, _EVENT.number)
)
_SIZES = (
    sa.select(_EVENT.id, sa.func.count(), sa.func.sum(_OF_EVENT.size))
    .select_from(_OF_EVENT.joined)
    .where(_EVENT.id.in_(sa.bindparam("ids", expanding=True)), _OF_EVENT.is_there)
    .group_by(_EVENT.id)
)
_SEGMENTS = (
    sa.select(model.log_segment)
    .where(_SEGMENT.event_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_SEGMENT.event_id, _SEGMENT.first_index)
)
_HASHES = (
    sa.select(_SEGMENT.event_id, _SEGMENT.first_index, _SEGMENT["items"], PLAIN_SIZE, _SEGMENT.hash)
    .where(_SEGMENT.event_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_SEGMENT.event_id, _SEGMENT.first_index)
)


@dataclass(slots=True)
class _Stored:
    """The segments of an event, summed up."""

    items: int = 0
    data_bytes: int = 0
    hashes: list[bytes] = field(default_factory=list)
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    is_readable: bool = True
    """False while the data of one can't be had: then the digest lacks it."""


def check_content(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check all envelopes, in the order of their ids; each page is one look at the database."""
    after = UUID(int=0)
    while True:
        with connection.begin():
            found = connection.execute(_ENVELOPES, {"after": after}).mappings().all()
            counts: dict[UUID, int] = dict(
                connection.execute(_EVENT_COUNTS, {"ids": [each["id"] for each in found]}).all()
            )
            for page in pages([(each, counts.get(each["id"], 0)) for each in found], PAGE_EVENTS):
                yield from _check_page(connection, [each for each, _ in page], tell)
        if len(found) < PAGE_ENVELOPES:
            return
        after = found[-1]["id"]


def _check_page(connection: sa.Connection, envelopes: Sequence[Any], tell: Tell) -> Iterator[Fault]:
    events: defaultdict[UUID, list[Any]] = defaultdict(list)
    for event in connection.execute(_EVENTS, {"ids": [each["id"] for each in envelopes]}).mappings():
        events[event["envelope_id"]].append(event)
    stored: defaultdict[UUID, _Stored] = defaultdict(_Stored)
    own = [each["id"] for of_envelope in events.values() for each in of_envelope if each["origin_id"] is None]
    yield from _read_own(connection, own, stored, tell)
    origins = {each["origin_id"] for of_envelope in events.values() for each in of_envelope} - {None, *own}
    _read_origins(connection, origins, stored)
    for envelope in envelopes:
        yield from _check_envelope(envelope, events[envelope["id"]], stored)
    tell(len(envelopes) + sum(map(len, events.values())))


def _read_own(
    connection: sa.Connection, event_ids: Sequence[UUID], stored: dict[UUID, _Stored], tell: Tell
) -> Iterator[Fault]:
    """Read the segments of events, as much at once as memory has room for."""
    sizes = connection.execute(_SIZES, {"ids": event_ids}).all()
    for page in pages([(event_id, int(size or 0)) for event_id, _, size in sizes], PAGE_BYTES):
        if len(page) == 1:
            ((event_id, _),) = page
            yield from _take(_by_parts(connection, event_id), stored, segment_data(connection))
        else:
            rows = connection.execute(_SEGMENTS, {"ids": [event_id for event_id, _ in page]})
            yield from _take(map(stored_row, rows.mappings()), stored, segment_data(connection))
    tell(sum(count for _, count, _ in sizes))


def _by_parts(connection: sa.Connection, event_id: UUID) -> Iterator[SegmentRow]:
    index = -(2**62)
    while rows := read_stored(connection, event_id, index, PAGE_BYTES):
        yield from rows
        index = rows[-1].first_index + 1


def _take(rows: Iterable[SegmentRow], stored: dict[UUID, _Stored], door: SegmentData) -> Iterator[Fault]:
    for row in rows:
        event = stored[row.event_id]
        try:
            plain = row.plain(door)
        except JournalUnavailable:
            raise  # an object store that is away is no damage
        except JournalError as error:
            # One fault for data that can't be had, and none for what hangs on it.
            event.is_readable = False
            causes, data_bytes = [error.cause], row.plain_bytes or 0
        else:
            causes, data_bytes = [*_causes(plain, event)], len(plain.data)
            event.digest.update(plain.data)
        for cause in causes:
            yield Fault(FaultCode.SEGMENT_CHANGED, "log_segment", f"{row.event_id}, {row.first_index}", cause)
        event.items += row.items
        event.data_bytes += data_bytes
        event.hashes.append(row.hash)


def _causes(row: SegmentRow, event: _Stored) -> Iterator[str]:
    if row.first_index != event.items:
        yield f"it begins with item {row.first_index}, and {event.items} items come before it"
    if hashlib.sha256(row.data).digest() != row.hash:
        yield "its data does not have its hash"
    if not has_items(row.data, row.items):
        yield f"its data is not {row.items} items"
    if row.indices is not None and len(row.indices) != row.items:
        yield f"it has indices for {len(row.indices)} of {row.items} items"


def _read_origins(connection: sa.Connection, event_ids: Iterable[UUID], stored: dict[UUID, _Stored]) -> None:
    """Read hashes and counts of segments that repeats share; their data is checked with the event that owns them."""
    for event_id, _, items, size, digest in connection.execute(_HASHES, {"ids": list(event_ids)}):
        event = stored[event_id]
        event.items += items
        event.data_bytes += size
        event.hashes.append(bytes(digest))


def _check_envelope(envelope: Any, events: Sequence[Any], stored: dict[UUID, _Stored]) -> Iterator[Fault]:
    def fault(cause: str) -> Fault:
        return Fault(FaultCode.ENVELOPE_CHANGED, "envelope", str(envelope["id"]), cause)

    received = envelope["state"] == EnvelopeState.RECEIVED.value
    sealed = [envelope[name] for name in ("position", "events", "items", "bytes", "hash")]
    if any((value is None) == received for value in sealed):
        yield fault(f"it is {envelope['state']}, and its position, counts and hash say otherwise")
        return
    if (envelope["closed_at"] is None) != (envelope["state"] == EnvelopeState.OPEN.value):
        yield fault(f"it is {envelope['state']}, and the moment of its end says otherwise")
    elif envelope["closed_at"] is not None and envelope["closed_at"] < envelope["opened_at"]:
        yield fault("it ended before it began")
    yield from map(fault, _key_causes(envelope, events))
    if envelope["pruned_at"] is not None:
        return
    is_there = not envelope["is_away"] and not any(event["origin_is_away"] for event in events)
    for number, event in enumerate(events, 1):
        for cause in _event_causes(event, number, stored if is_there else None):
            yield Fault(FaultCode.EVENT_CHANGED, "event", str(event["id"]), cause)
    if received:
        yield from map(fault, _seal_causes(envelope, events, stored if is_there else None))


def check_spent_keys(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check that the keys of removed envelopes stand for the envelopes that they name."""
    after = UUID(int=0)
    while True:
        with connection.begin():
            page = connection.execute(_SPENT, {"after": after}).all()
        for spent in page:
            cause = ""
            if not _is_of_key(spent.envelope_id, spent.emitter_id, spent.key):
                cause = "its id is not that of its emitter and its key"
            elif len({value is None for value in spent[4:]}) == 2:
                cause = "a part of its receipt is missing"
            if cause:
                yield Fault(FaultCode.ENVELOPE_CHANGED, "spent_key", str(spent.envelope_id), cause)
        tell(len(page))
        if len(page) < PAGE_EVENTS:
            return
        after = page[-1].envelope_id


_SPENT = (
    sa.select(model.spent_key)
    .where(model.spent_key.c.envelope_id > sa.bindparam("after"))
    .order_by(model.spent_key.c.envelope_id)
    .limit(PAGE_EVENTS)
)


def _is_of_key(envelope_id: UUID, emitter_id: int, key: str) -> bool:
    return envelope_id in (keyed_envelope_id(emitter_id, key, number) for number in range(MOST_GENERATIONS))


def _key_causes(envelope: Any, events: Sequence[Any]) -> Iterator[str]:
    key = envelope["idempotency_key"]
    if key is None:
        return
    if not _is_of_key(envelope["id"], envelope["emitter_id"], key):
        yield "its id is not that of its emitter and its key"
    elif any(event["id"] != numbered_event_id(envelope["id"], event["number"]) for event in events):
        yield "the id of an event is not that of its number"


def _event_causes(event: Any, number: int, stored: dict[UUID, _Stored] | None) -> Iterator[str]:
    if event["number"] != number:
        yield f"it has the number {event['number']}, and is event {number} of its envelope"
    if event["type_of_graph"] != event["event_type_id"]:
        yield "its graph is of another event type"
    if stored is not None and event["items"] is not None:
        found = stored[event["origin_id"] or event["id"]].items
        if found != event["items"]:
            yield f"it says {event['items']} items, and its segments have {found}"


def _seal_causes(envelope: Any, events: Sequence[Any], stored: dict[UUID, _Stored] | None) -> Iterator[str]:
    if len(events) != envelope["events"]:
        yield f"it says {envelope['events']} events, and has {len(events)}"
    if any(event["items"] is None for event in events):
        yield "it is sealed, and an event of it is open"
        return
    if sum(event["items"] for event in events) != envelope["items"]:
        yield f"it says {envelope['items']} items, and its events {sum(event['items'] for event in events)}"
    if stored is None or any(event["first_name"] is None for event in events):
        return
    found = [stored[event["origin_id"] or event["id"]] for event in events]
    if sum(each.data_bytes for each in found) != envelope["bytes"]:
        yield f"it says {envelope['bytes']} bytes, and its segments have {sum(each.data_bytes for each in found)}"
    whole = [_content(event, each.hashes) for event, each in zip(events, found, strict=True)]
    if content_hash(whole, envelope["headers"]) != bytes(envelope["hash"]):
        yield "its events, their types, counts, headers and keys, and its headers do not have its hash"
    if envelope["content_hash"] is not None and all(each.is_readable for each in found):
        uncut = [[each.digest.digest()] if each.items else [] for each in found]
        whole = [_content(event, hashes) for event, hashes in zip(events, uncut, strict=True)]
        if content_hash(whole, envelope["headers"]) != bytes(envelope["content_hash"]):
            yield "its content does not have the hash of its key"


def _content(event: Any, hashes: Sequence[bytes]) -> Content:
    return Content(event["first_name"], event["items"], hashes, EventTags(event["headers"], event["partition_key"]))


# -- outputs -----------------------------------------------------------------------------------------------------------
# Computes hashes and totals of what bulk workers made anew, and counts the bytes that the journal stores.

SOURCE_BYTES = 8

_ATTEMPT, _OUTPUT_SEGMENT = model.bulk_attempt.c, model.bulk_segment.c
_READY = _ATTEMPT.state == AttemptState.READY.value


def check_outputs(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check each output that is ready: one that is still made, or came to nothing, counts nowhere."""
    with connection.begin():
        ready = connection.execute(sa.select(_ATTEMPT.id).where(_READY)).scalars().all()
    for attempt_id in ready:
        with connection.begin():
            told = connection.execute(sa.select(model.bulk_attempt).where(_ATTEMPT.id == attempt_id, _READY)).first()
            if told is None:  # its envelope was removed meanwhile
                continue
            found = read_totals(connection, attempt_id)
            wanted = told._mapping
            if (found.items, found.data_bytes, found.hash) != (wanted["items"], told.bytes, bytes(told.hash or b"")):
                cause = "its segments do not have its hash, its number of items, or its size"
                yield Fault(FaultCode.OUTPUT_CHANGED, "bulk_attempt", str(attempt_id), cause)
            after, before = BEGINNING, BEGINNING
            while page := read_output(connection, attempt_id, after, PAGE_BYTES, verify=lambda data, _: data):
                hashes = dict(_hashes(connection, attempt_id, page[0].place, page[-1].place))
                for segment in page:
                    good = hashlib.sha256(segment.data).digest() == hashes.get(segment.place)
                    sourced = segment.sources is None or len(segment.sources) == SOURCE_BYTES * segment.items
                    number = before[1] + 1 if segment.part == before[0] else 0
                    before = segment.place
                    row = f"{attempt_id}, {segment.part}, {segment.number}"
                    if segment.number != number:
                        cause = f"it is segment {number} of its part"
                        yield Fault(FaultCode.OUTPUT_CHANGED, "bulk_segment", row, cause)
                    if not (good and sourced and has_items(segment.data, segment.items)):
                        cause = "its data does not have its hash, or its number of items"
                        yield Fault(FaultCode.OUTPUT_CHANGED, "bulk_segment", row, cause)
                after = page[-1].place
                tell(len(page))


def _hashes(
    connection: sa.Connection, attempt_id: UUID, first: Place, last: Place
) -> Iterator[tuple[Place, bytes | None]]:
    place = sa.tuple_(_OUTPUT_SEGMENT.part, _OUTPUT_SEGMENT.number)
    found = sa.select(_OUTPUT_SEGMENT.part, _OUTPUT_SEGMENT.number, _OUTPUT_SEGMENT.hash).where(
        _OUTPUT_SEGMENT.attempt_id == attempt_id, place >= sa.tuple_(*first), place <= sa.tuple_(*last)
    )
    for part, number, digest in connection.execute(found):
        yield (part, number), bytes(digest)


def check_stored_bytes(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Compare the count of stored bytes, by which the journal knows that it is full, with their sum."""
    counted = sa.select(sa.func.coalesce(sa.func.sum(model.writer.c.stored_bytes), 0)).scalar_subquery()
    of_segments = sa.func.coalesce(sa.func.sum(PLAIN_SIZE), 0)
    of_outputs = sa.select(sa.func.coalesce(sa.func.sum(_ATTEMPT.bytes), 0)).where(_READY)
    sums = sa.select(counted, sa.select(of_segments).scalar_subquery(), of_outputs.scalar_subquery())
    with connection.begin():
        says, segments, outputs = map(int, connection.execute(sums).one())
    tell(0)
    if says != segments + outputs:
        cause = f"it counts {says} bytes of items, and {segments + outputs} are stored"
        yield Fault(FaultCode.BYTES_MISCOUNTED, "writer", "", cause)
