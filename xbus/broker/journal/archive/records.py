"""The moment from which a file counts instead of the segments, and the removal of these."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.plans import FilePlan
from xbus.broker.journal.archive.runs import KEPT, WRITER
from xbus.broker.journal.archive.segments import EventCopied, FileWritten
from xbus.broker.journal.bulk.cleaning import ARCHIVED, discard_outputs
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.broker.journal.retention.needed import FOR_ARCHIVE, Candidate, settled_among
from xbus.broker.journal.retention.pruning import PruningStep, remove_segments
from xbus.broker.journal.retention.search import PAGE_ENVELOPES
from xbus.errors import JournalError
from xbus.headers import EventTags

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
