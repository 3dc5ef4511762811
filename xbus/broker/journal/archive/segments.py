"""Segments to the last byte: as they are copied into an archive, and restored from one."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.runs import WRITER
from xbus.broker.journal.commit.statements.emission import insert_segments
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.log.segments import SegmentRow


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
    """Read the next segments of an event, in index order.

    Args:
        from_index: of the first one's first item.
        max_bytes: segments are added until their data would exceed this; the first one always comes.

    Returns:
        Segments that follow each other; none at the event's end.
    """
    segment = model.segment.c
    following = sa.and_(segment.event_id == segments_id, segment.first_index >= from_index)
    sizes = connection.execute(
        sa.select(segment.first_index, sa.func.length(segment.data))
        .where(following)
        .order_by(segment.first_index)
        .limit(500)
    ).all()
    page = first_page(sizes, max_bytes)
    if not page:
        return []
    upto = segment.first_index <= page[-1].first_index
    rows = connection.execute(sa.select(model.segment).where(following, upto).order_by(segment.first_index))
    return [
        SegmentRow(row.event_id, row.first_index, row._mapping["items"], bytes(row.data), bytes(row.hash), row.indices)
        for row in rows
    ]


def put_rows(connection: sa.Connection, rows: Sequence[SegmentRow]) -> None:
    """Put segments of one event back; those that are there already, as an earlier try put them, stay.

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
    insert_segments(connection, missing)
    writer = model.writer.c
    grown = writer.stored_bytes + sum(len(row.data) for row in missing)
    connection.execute(sa.update(model.writer).where(writer.name == WRITER).values(stored_bytes=grown))
