"""Segments to the last byte: as they are copied into an archive, and restored from one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.runs import WRITER
from xbus.broker.journal.commit.statements.emission import insert_segments
from xbus.broker.journal.database.compression import PLAIN_SIZE
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.log.segments import SegmentRow
from xbus.broker.journal.objects.reading import segment_data


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
