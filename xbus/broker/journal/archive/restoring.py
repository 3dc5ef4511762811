"""Putting archived envelopes back into the log, so that they can be repeated and delivered as any other."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.records import differs
from xbus.broker.journal.database.compression import OfEvent
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.errors import Refused
from xbus.headers import EventTags


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
            event.number,
            model.event_type.c.first_name,
            event.headers,
            event.partition_key,
            segments.items,
            segments.hash,
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
