"""Putting archived envelopes back into the journal, in small steps that may be broken off anywhere."""

from collections.abc import Callable, Iterator
from uuid import UUID

from spark_worker.archive.copying import read_segments
from spark_worker.archive.run import ArchiveRun
from xbus.broker.journal.archive import records as archive_records
from xbus.broker.journal.archive.records import Archived, ArchivedEvent
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.log.segments import SegmentRow
from xbus.clock import Clock

STEP_BYTES = 4 * 1024 * 1024


def restore(
    url: str,
    run: ArchiveRun,
    envelope_id: UUID,
    clock: Clock,
    *,
    step_bytes: int = STEP_BYTES,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[UUID]:
    """Restore an envelope, and before it those whose items it repeats.

    Args:
        url: the journal's address.
        run: the run that this is part of.
        step_bytes: about so many bytes are restored at once.
        on_step: called before each step with a description of it.

    Returns:
        The envelopes that are in the journal again, this one last.

    Raises:
        Refused: envelope_unknown, not_archived.
        JournalError: the content of its files differs from its receipt (``archive_differs``).
        OSError: a file can't be read.
    """
    with reading(url) as connection:
        wanted = archive_records.read_archived(connection, envelope_id)
        chain = [*(archive_records.read_archived(connection, origin) for origin in wanted.origins), wanted]
    for archived in chain:
        _restore_one(run, archived, clock, step_bytes, on_step)
    return [archived.envelope_id for archived in chain]


def _restore_one(
    run: ArchiveRun, archived: Archived, clock: Clock, step_bytes: int, on_step: Callable[[str], None]
) -> None:
    on_step("begin")
    run.step(archive_records.begin_restore, archived.envelope_id)
    for event in archived.events:
        for rows in _pages(event, step_bytes):
            on_step("put")
            run.step(archive_records.put_rows, rows)
    on_step("finish")
    run.step(archive_records.finish_restore, archived.envelope_id, clock.now())


def _pages(event: ArchivedEvent, step_bytes: int) -> Iterator[list[SegmentRow]]:
    page: list[SegmentRow] = []
    size = 0
    for segment in read_segments(event.location, event.position):
        # The file may hold other events of the same envelope.
        if segment.event_id != event.event_id:
            continue
        page.append(segment)
        size += len(segment.data)
        if size >= step_bytes:
            yield page
            page, size = [], 0
    if page:
        yield page
