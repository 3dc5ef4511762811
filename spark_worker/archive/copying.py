"""An executor copies events from the journal into one Parquet file, and reads them back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_worker.archive import storage
from spark_worker.archive.reading import may_hold, opened
from spark_worker.archive.rows import SCHEMA, SEGMENT_COLUMNS, rebuilt, segment_rows
from xbus.broker.journal.archive.plans import FilePlan, PlannedEvent, is_wanted
from xbus.broker.journal.archive.records import EventCopied, FileWritten, differs, read_rows
from xbus.broker.journal.database.connection import Connection, connected
from xbus.broker.journal.log.segments import SegmentRow
from xbus.errors import JournalError, XbusError

PAGE_BYTES = 4 * 1024 * 1024

GROUP_ROWS = 64 * 1024
GROUP_BYTES = 16 * 1024 * 1024
"""A row group ends behind the segment with which it has so many."""


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """The cause for which a file could not be made, in a sentence and with a code."""

    cause: str
    next_step: str
    code: str


def copy_file(
    url: str, plan: FilePlan, wrote: Callable[[int], None] = lambda _: None, *, group_rows: int = GROUP_ROWS
) -> FileWritten | CopyFailed:
    """Make a file, and describe its content from what is read back.

    Args:
        url: the journal's address.
        wrote: gets the bytes of items when they are written, which is once a row group.
        group_rows: the items of a row group.
    """
    try:
        with connected(url) as connection:
            hashes: dict[UUID, list[bytes]] = {event.event_id: [] for event in plan.events}
            size = storage.publish(
                plan.location, lambda sink: _write(connection, plan, sink, hashes, wrote, group_rows)
            )
        return FileWritten(plan.file_id, plan.items, size, tuple(_read_back(plan, hashes)))
    except XbusError as error:
        return CopyFailed(error.cause, error.next_step, error.code)
    except (OSError, pa.ArrowException) as error:
        return CopyFailed(f"{plan.location} can't be written or read ({error})", "check the storage", "archive_failed")


def _write(
    connection: Connection,
    plan: FilePlan,
    sink: Any,
    hashes: dict[UUID, list[bytes]],
    wrote: Callable[[int], None],
    group_rows: int,
) -> None:
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer:
        group: list[pa.RecordBatch] = []
        rows = size = 0
        for event in plan.events:
            for segment in _segments(connection, event):
                hashes[event.event_id].append(segment.hash)
                group.append(segment_rows(event, segment))
                rows += segment.items
                size += len(segment.data)
                if rows >= group_rows or size >= GROUP_BYTES:
                    _write_group(writer, group, rows)
                    wrote(size)
                    group, rows, size = [], 0, 0
        if group:
            _write_group(writer, group, rows)
            wrote(size)
    # Before the file appears: one that its run gave up meanwhile must not.
    with connection.begin():
        if not is_wanted(connection, plan.file_id):
            raise JournalError("another command took this one's place", code="archive_overtaken")


def _write_group(writer: Any, group: list[pa.RecordBatch], rows: int) -> None:
    writer.write_table(pa.Table.from_batches(group), row_group_size=rows)


def _segments(connection: Connection, event: PlannedEvent) -> Iterator[SegmentRow]:
    """Iterate over the segments of an event, which have their hashes, and check that none is missing."""
    index = 0
    while index < event.items:
        # No read transaction outlives a fetch: on SQLite it would keep the log of writes from being carried over.
        with connection.begin():
            page = read_rows(connection, event.segments_id, index, PAGE_BYTES)
        if not page:
            raise differs(f"of event {event.event_id} only {index} of {event.items} items are in the journal")
        for segment in page:
            if segment.first_index != index:
                raise differs(f"the items of event {event.event_id} from {index} on are not what was stored")
            index += segment.items
            yield segment
    if index != event.items:
        raise differs(f"event {event.event_id} has {index} items in the journal, and {event.items} were sent")


def _read_back(plan: FilePlan, hashes: dict[UUID, list[bytes]]) -> Iterator[EventCopied]:
    found: dict[UUID, list[bytes]] = {event.event_id: [] for event in plan.events}
    items = dict.fromkeys(found, 0)
    for segment in read_segments(plan.location):
        if segment.event_id not in found or segment.first_index != items[segment.event_id]:
            raise differs(f"{plan.location} holds what was not written")
        found[segment.event_id].append(segment.hash)
        items[segment.event_id] += segment.items
    if found != hashes or sum(items.values()) != plan.items:
        raise differs(f"{plan.location} does not hold what was written")
    for event in plan.events:
        yield EventCopied(event.event_id, items[event.event_id], tuple(found[event.event_id]))


def read_segments(location: str, position: int | None = None) -> Iterator[SegmentRow]:
    """Read the segments in a file, as they were in the journal, of all envelopes or of one position.

    Raises:
        OSError: the file can't be read.
        JournalError: the file is missing (``archive_missing``) or damaged (``archive_differs``).
    """
    with opened(location) as file:
        for group in range(file.num_row_groups):
            if position is not None and not may_hold(file, group, position, position):
                continue
            columns = [*SEGMENT_COLUMNS] if position is None else [*SEGMENT_COLUMNS, "position"]
            rows = file.read_row_group(group, columns=columns)
            if position is not None:
                rows = rows.filter(pc.equal(rows.column("position"), position))
            yield from rebuilt(rows)
