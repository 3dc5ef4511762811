"""The moment from which a file counts instead of the segments, and the removal of these."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.plans import KEPT, WRITER, FilePlan
from xbus.broker.journal.bulk.cleaning import ARCHIVED, discard_outputs
from xbus.broker.journal.commit.statements.emission import insert_segments
from xbus.broker.journal.database.compression import PLAIN_SIZE, OfEvent
from xbus.broker.journal.database.paging import first_page, portions
from xbus.broker.journal.log.segments import Content, SegmentRow, content_hash
from xbus.broker.journal.objects.reading import segment_data
from xbus.broker.journal.retention.needed import FOR_ARCHIVE, Candidate, settled_among
from xbus.broker.journal.retention.pruning import PruningStep, remove_segments
from xbus.broker.journal.retention.rules import PAGE_ENVELOPES
from xbus.errors import JournalError, Refused
from xbus.headers import EventTags

# -- segments ----------------------------------------------------------------------------------------------------------
# Segments to the last byte: as they are copied into an archive, and restored from one.


@dataclass(frozen=True, slots=True)
class EventCopied:
    """An event whose items are in a file, as they were read back from it.

    Args:
        hashes: of its segments, in index order.
    """

    event_id: UUID
    items: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file that is complete as far as it can tell by itself; ``size`` in bytes."""

    file_id: UUID
    items: int
    size: int
    events: tuple[EventCopied, ...]


def read_rows(connection: sa.Connection, segments_id: UUID, from_index: int, max_bytes: int) -> list[SegmentRow]:
    """Read the next segments of an event, in index order, with their plain data.

    Args:
        from_index: of the first one's first item.
        max_bytes: segments are added until their data would exceed this; the first one always comes.

    Returns:
        Segments that follow each other; none at the event's end.

    Raises:
        JournalError: one is damaged (``segment_damaged``) or not where it should be (``object_missing``).
    """
    door = segment_data(connection)
    return [row.plain(door) for row in read_stored(connection, segments_id, from_index, max_bytes)]


def read_stored(connection: sa.Connection, segments_id: UUID, from_index: int, max_bytes: int) -> list[SegmentRow]:
    """Read as ``read_rows`` does, with the data as it is stored."""
    segment = model.log_segment.c
    following = sa.and_(segment.event_id == segments_id, segment.first_index >= from_index)
    sizes = connection.execute(
        sa.select(segment.first_index, PLAIN_SIZE).where(following).order_by(segment.first_index).limit(500)
    ).all()
    page = first_page(sizes, max_bytes)
    if not page:
        return []
    upto = segment.first_index <= page[-1].first_index
    rows = connection.execute(sa.select(model.log_segment).where(following, upto).order_by(segment.first_index))
    return [stored_row(row) for row in rows.mappings()]


def stored_row(row: sa.RowMapping) -> SegmentRow:
    """Take a row of ``model.log_segment`` as it is stored."""
    named: dict[str, Any] = dict(row)
    return SegmentRow(**named)._replace(data=bytes(row["data"]), hash=bytes(row["hash"]))


def put_rows(connection: sa.Connection, rows: Sequence[SegmentRow]) -> None:
    """Put plain segments of one event back; those that are there already, as an earlier try put them, stay.

    Args:
        rows: in index order.
    """
    segment = model.segment.c
    first, last = rows[0].first_index, rows[-1].first_index
    there = sa.select(segment.first_index).where(
        segment.event_id == rows[0].event_id, segment.first_index.between(first, last)
    )
    known = set(connection.execute(there).scalars())
    missing = [row for row in rows if row.first_index not in known]
    if not missing:
        return
    insert_segments(connection, [row.compressed() for row in missing] if _are_compressed(connection, rows) else missing)
    writer = model.writer.c
    grown = writer.stored_bytes + sum(len(row.data) for row in missing)
    connection.execute(sa.update(model.writer).where(writer.name == WRITER).values(stored_bytes=grown))


def _are_compressed(connection: sa.Connection, rows: Sequence[SegmentRow]) -> bool:
    of_event = (
        sa.select(model.event_type.c.compress)
        .join(model.event, model.event.c.event_type_id == model.event_type.c.id)
        .where(model.event.c.id == rows[0].event_id)
    )
    return connection.execute(of_event).scalar() not in (None, "none")


PAGE = 500


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a round.

    Args:
        envelopes: how many of them are archived now.
        items: how many they hold.
        spoiled: files that don't count, as somebody needs an envelope again that has items in them.
    """

    envelopes: int
    items: int
    spoiled: tuple[UUID, ...]


def record_files(
    connection: sa.Connection, plans: Sequence[FilePlan], written: Sequence[FileWritten], now: datetime
) -> Recorded:
    """Have files count from now on, and the segments of their envelopes no longer.

    It is made sure once more that nobody needs the envelopes, and that the files hold them: the same items, and the
    same hash as the emitter's receipt. If an envelope is needed again, none of the files that hold items of it comes to
    count, nor any envelope that has items in one of these.

    Args:
        connection: in a transaction of its own.
        plans: whole envelopes, so that all files of a round are recorded together.

    Raises:
        JournalError: a file does not hold what the journal does (``archive_differs``).
    """
    events = [event for plan in plans for event in plan.events]
    ids = list({event.envelope_id: None for event in events})
    spoiled = _spoiled(plans, set(ids) - _settled(connection, ids))
    counting = [plan for plan in plans if plan.file_id not in spoiled]
    archived = list({event.envelope_id: None for plan in counting for event in plan.events})
    copied = {event.event_id: event for file in written for event in file.events}
    items = sum(_check(connection, page, copied) for page in portions(archived, PAGE))
    sizes = {file.file_id: file.size for file in written}
    for plan in counting:
        _keep(connection, plan, sizes[plan.file_id], copied)
    for page in portions(archived, PAGE):
        _mark(connection, page, now)
    return Recorded(len(archived), items, tuple(spoiled))


def _settled(connection: sa.Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Select the envelopes that may still go, and block new repeats of them until the end of the transaction."""
    envelope = model.envelope.c
    found: list[Candidate] = []
    for page in portions(ids, PAGE):
        rows = connection.execute(
            sa.select(envelope.id, envelope.position, envelope.closed_at, envelope.bytes)
            .where(envelope.id.in_(page), envelope.pruned_at.is_(None))
            .order_by(envelope.position)
            .with_for_update()
        )
        found += settled_among(connection, [Candidate(*row, True) for row in rows], FOR_ARCHIVE)
    return {candidate.envelope_id for candidate in found}


def _spoiled(plans: Sequence[FilePlan], needed: set[UUID]) -> set[UUID]:
    """Collect the files that can't count when some envelopes stay.

    An envelope goes with all its events or not at all.
    """
    spoiled: set[UUID] = set()
    while True:
        hit = [
            plan
            for plan in plans
            if plan.file_id not in spoiled and any(event.envelope_id in needed for event in plan.events)
        ]
        if not hit:
            return spoiled
        spoiled.update(plan.file_id for plan in hit)
        needed = needed | {event.envelope_id for plan in hit for event in plan.events}


def _check(connection: sa.Connection, envelope_ids: Sequence[UUID], copied: Mapping[UUID, EventCopied]) -> int:
    """Compare the copied items with the receipts, and count them."""
    event = model.event.c
    content: dict[UUID, list[Content]] = {envelope_id: [] for envelope_id in envelope_ids}
    rows = connection.execute(
        sa.select(event.envelope_id, event.id, model.event_type.c.first_name, event.headers, event.partition_key)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .where(event.envelope_id.in_(envelope_ids))
        .order_by(event.number)
    )
    for envelope_id, event_id, hashed_name, *tags in rows:
        copy = copied.get(event_id)
        items, hashes = (copy.items, copy.hashes) if copy else (0, ())
        content[envelope_id].append(Content(hashed_name, items, hashes, EventTags(*tags)))
    envelope = model.envelope.c
    receipts = sa.select(envelope.id, envelope["items"], envelope.hash, envelope.headers)
    total = 0
    for envelope_id, items, receipt_hash, headers in connection.execute(receipts.where(envelope.id.in_(envelope_ids))):
        found = content[envelope_id]
        if sum(each.items for each in found) != items or content_hash(found, headers) != bytes(receipt_hash):
            raise differs(f"what was written of envelope {envelope_id} is not what its receipt says")
        total += items
    return total


def differs(cause: str) -> JournalError:
    """Make the error for a copy that differs: the journal keeps its items."""
    return JournalError(cause, "the journal keeps the items; check the storage", code="archive_differs")


def _keep(connection: sa.Connection, plan: FilePlan, size: int, copied: Mapping[UUID, EventCopied]) -> None:
    file = model.archive_file
    kept = sa.update(file).where(file.c.id == plan.file_id).values(state=KEPT, bytes=size)
    if connection.execute(kept).rowcount != 1:
        raise JournalError(f"the file {plan.location} is not known any more", code="archive_overtaken")
    copies = [copied[event.event_id] for event in plan.events]
    rows = [
        {
            "event_id": copy.event_id,
            "file_id": plan.file_id,
            "segments": len(copy.hashes),
            "hash": hashlib.sha256(b"".join(copy.hashes)).digest(),
        }
        for copy in copies
    ]
    connection.execute(sa.insert(model.archived_event), rows)


def _mark(connection: sa.Connection, envelope_ids: Sequence[UUID], now: datetime) -> None:
    rows = [{"envelope_id": envelope_id, "archived_at": now} for envelope_id in envelope_ids]
    connection.execute(sa.insert(model.archived_envelope), rows)
    _let_go(connection, envelope_ids, now)


def _let_go(connection: sa.Connection, envelope_ids: Sequence[UUID], now: datetime) -> None:
    """Mark some envelopes as archived: from now on nobody reads their segments, nor the outputs made of them."""
    envelope = model.envelope
    discard_outputs(connection, WRITER, envelope_ids, now, ARCHIVED)
    connection.execute(sa.update(envelope).where(envelope.c.id.in_(envelope_ids)).values(pruned_at=now))


def retire_restored(connection: sa.Connection, until: datetime, now: datetime) -> int:
    """Have the files of those envelopes count again that were restored before ``until`` and that nobody needs.

    Returns:
        How many.
    """
    archived = model.archived_envelope.c
    restored = connection.execute(sa.select(archived.envelope_id).where(archived.restored_at < until)).scalars().all()
    ids = list(_settled(connection, restored))
    for page in portions(ids, PAGE):
        _let_go(connection, page, now)
        again = sa.update(model.archived_envelope).where(archived.envelope_id.in_(page))
        connection.execute(again.values(restored_at=None, removed_at=None))
    return len(ids)


def remove_archived(connection: sa.Connection, now: datetime) -> PruningStep:
    """Remove some of the segments that don't count any more; ``after`` only says whether more are left."""
    envelope, archived = model.envelope.c, model.archived_envelope.c
    rows = connection.execute(
        sa.select(envelope.id, envelope.position, envelope.closed_at, envelope.bytes)
        .join(model.archived_envelope, archived.envelope_id == envelope.id)
        .where(archived.removed_at.is_(None), envelope.pruned_at.is_not(None))
        .order_by(archived.archived_at, envelope.position)
        .limit(PAGE_ENVELOPES)
    ).all()
    found = [Candidate(*row, True) for row in rows]
    data_bytes, emptied = remove_segments(connection, WRITER, found, keeps_events=True)
    ids = [candidate.envelope_id for candidate in emptied]
    gone = sa.update(model.archived_envelope).where(archived.envelope_id.in_(ids))
    connection.execute(gone.values(removed_at=now))
    return PruningStep(len(emptied), data_bytes, 0 if found else None)


# -- restoring ---------------------------------------------------------------------------------------------------------
# Putting archived envelopes back into the log, so that they can be repeated and delivered as any other.


@dataclass(frozen=True, slots=True)
class ArchivedEvent:
    """An event whose items are in a file; ``position`` is its envelope's."""

    event_id: UUID
    position: int
    items: int
    location: str


@dataclass(frozen=True, slots=True)
class Archived:
    """An archived envelope.

    Args:
        events: those whose segments must be restored for it; none if it repeats another and has none of its own.
        origins: the envelopes whose segments hold its items, where they are archived too.
    """

    envelope_id: UUID
    events: tuple[ArchivedEvent, ...]
    origins: tuple[UUID, ...]


def read_archived(connection: sa.Connection, envelope_id: UUID) -> Archived:
    """Read what restores an archived envelope.

    Raises:
        Refused: the envelope does not exist (``envelope_unknown``), or is not archived (``not_archived``).
    """
    envelope, event, archived = model.envelope.c, model.event.c, model.archived_event.c
    found = connection.execute(
        sa.select(envelope.position, envelope.pruned_at.is_not(None), model.archived_envelope.c.envelope_id)
        .outerjoin(model.archived_envelope, model.archived_envelope.c.envelope_id == envelope.id)
        .where(envelope.id == envelope_id)
    ).one_or_none()
    if found is None:
        raise Refused(f"there is no envelope {envelope_id}", "see xbus envelope list", code="envelope_unknown")
    position, is_gone, archived_id = found
    if archived_id is None or not is_gone:
        why = "was removed for good" if is_gone else "is in the journal"
        raise Refused(f"envelope {envelope_id} {why}, not in an archive", code="not_archived")
    own = connection.execute(
        sa.select(event.id, event["items"], model.archive_file.c.location)
        .join(model.archived_event, archived.event_id == event.id)
        .join(model.archive_file, model.archive_file.c.id == archived.file_id)
        .where(event.envelope_id == envelope_id, event.origin_id.is_(None))
        .order_by(event.number)
    )
    first = model.event.alias("first")
    origins = connection.execute(
        sa.select(envelope.id)
        .join(first, first.c.envelope_id == envelope.id)
        .join(model.event, event.origin_id == first.c.id)
        .where(event.envelope_id == envelope_id, envelope.pruned_at.is_not(None))
        .distinct()
    )
    events = tuple(ArchivedEvent(event_id, position, items, location) for event_id, items, location in own)
    return Archived(envelope_id, events, tuple(origins.scalars()))


def begin_restore(connection: sa.Connection, envelope_id: UUID) -> None:
    """Note that segments of it may exist from now on; after an interruption the next run removes them."""
    archived = model.archived_envelope
    begun = sa.update(archived).where(archived.c.envelope_id == envelope_id).values(removed_at=None)
    connection.execute(begun)


def finish_restore(connection: sa.Connection, envelope_id: UUID, now: datetime) -> None:
    """Have the segments of an envelope count again, which are all there.

    Raises:
        JournalError: they are not what its receipt says (``archive_differs``).
    """
    envelope, archived = model.envelope.c, model.archived_envelope
    receipt = sa.select(envelope["items"], envelope.hash, envelope.headers).where(envelope.id == envelope_id)
    items, receipt_hash, headers = connection.execute(receipt).one()
    content = _content(connection, envelope_id)
    if sum(each.items for each in content) != items or content_hash(content, headers) != bytes(receipt_hash):
        raise differs(f"what was restored of envelope {envelope_id} is not what its receipt says")
    connection.execute(sa.update(model.envelope).where(envelope.id == envelope_id).values(pruned_at=None))
    restored = sa.update(archived).where(archived.c.envelope_id == envelope_id)
    connection.execute(restored.values(restored_at=now, removed_at=None))


def _content(connection: sa.Connection, envelope_id: UUID) -> list[Content]:
    event, source = model.event.c, model.event.alias("source")
    segments = OfEvent(source)
    rows = connection.execute(
        sa.select(
            *(event.number, model.event_type.c.first_name, event.headers, event.partition_key),
            *(segments.items, segments.hash),
        )
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .join(segments.joined, source.c.id == sa.func.coalesce(event.origin_id, event.id))
        .where(event.envelope_id == envelope_id)
        .order_by(event.number, model.segment.c.first_index)
    )
    found: dict[int, tuple[str, EventTags, list[int], list[bytes]]] = {}
    for number, hashed_name, *tags, items, segment_hash in rows:
        _, _, counts, hashes = found.setdefault(number, (hashed_name, EventTags(*tags), [], []))
        if segment_hash is not None:
            counts.append(items)
            hashes.append(bytes(segment_hash))
    return [Content(name, sum(counts), hashes, tags) for name, tags, counts, hashes in found.values()]
