"""Plans the next files of an archive."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.database.schema import ONE_AT_A_TIME
from xbus.broker.journal.log.envelopes import is_archived
from xbus.broker.journal.retention.needed import FOR_ARCHIVE, Candidate, FreePart, next_free, read_owed, settled_among
from xbus.broker.journal.retention.rules import Scan, is_within, kept_long_enough, of_types
from xbus.errors import Failed, JournalError
from xbus.headers import NO_TAGS, EventTags

# -- runs --------------------------------------------------------------------------------------------------------------
# One command at a time archives or restores; what one that died left behind is found by the next.

WRITER = "archive"
"""The row of ``model.writer`` that counts the bytes that runs remove from the journal and restore."""

WRITING, KEPT = "writing", "kept"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that a dead run may have written, wholly or in part, and that does not count."""

    file_id: UUID
    location: str


def begin_run(connection: sa.Connection, run_id: UUID, now: datetime, lease_until: datetime) -> list[Leftover]:
    """Begin a run, in place of a dead one if necessary.

    Args:
        connection: in a transaction of its own.

    Returns:
        The files that earlier runs left: remove them, then ``forget_files``.

    Raises:
        Failed: another run goes on (``archive_busy``), as its lease shows.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
    run = model.archive_run.c
    others = connection.execute(sa.select(run.id, run.lease_until).where(run.ended_at.is_(None))).all()
    if any(lease > now for _, lease in others):
        raise Failed(
            "another command archives or restores now, or was killed a moment ago",
            "repeat it in a minute",
            code="archive_busy",
        )
    for other, _ in others:
        end_run(connection, other, now)
    connection.execute(sa.insert(model.archive_run).values(id=run_id, started_at=now, lease_until=lease_until))
    _make_writer(connection)
    file = model.archive_file.c
    return [
        Leftover(*row) for row in connection.execute(sa.select(file.id, file.location).where(file.state == WRITING))
    ]


def _make_writer(connection: sa.Connection) -> None:
    writer = model.writer
    if connection.execute(sa.select(writer.c.name).where(writer.c.name == WRITER)).first() is None:
        connection.execute(sa.insert(writer).values(name=WRITER, epoch=0, group_number=0, stored_bytes=0))


def renew_run(connection: sa.Connection, run_id: UUID, lease_until: datetime) -> None:
    """Give a sign of life; each step does so in its transaction, and thereby checks its right.

    Raises:
        JournalError: another run took its place (``archive_overtaken``).
    """
    run = model.archive_run.c
    renewed = sa.update(model.archive_run).where(run.id == run_id, run.ended_at.is_(None))
    if connection.execute(renewed.values(lease_until=lease_until)).rowcount != 1:
        raise JournalError(
            "another command took this one's place, because it gave no sign of life",
            "repeat it when that one has ended",
            code="archive_overtaken",
        )


def end_run(connection: sa.Connection, run_id: UUID, now: datetime) -> None:
    """Note that a run is over, so that the next need not wait."""
    run = model.archive_run.c
    ended = sa.update(model.archive_run).where(run.id == run_id, run.ended_at.is_(None)).values(ended_at=now)
    connection.execute(ended)


def forget_files(connection: sa.Connection, file_ids: Sequence[UUID]) -> None:
    """Forget files that did not come to count, after they were removed."""
    file = model.archive_file.c
    connection.execute(sa.delete(model.archive_file).where(file.id.in_(file_ids), file.state == WRITING))


def is_wanted(connection: sa.Connection, file_id: UUID) -> bool:
    """Check whether a file is still to be written: the run that noted it goes on."""
    file, run = model.archive_file.c, model.archive_run.c
    wanted = sa.select(file.id).join(model.archive_run, run.id == file.run_id)
    is_open = sa.and_(file.id == file_id, file.state == WRITING, run.ended_at.is_(None))
    return connection.execute(wanted.where(is_open)).first() is not None


PAGE_ENVELOPES = 500
"""Envelopes that one read looks at."""


@dataclass(frozen=True, slots=True)
class Round:
    """The amounts that a run takes in one round.

    Args:
        envelopes: at the most.
        data_bytes: of the segments' data, about; one envelope is taken however large it is.
        file_bytes: of the segments' data in one file, about; one event is never cut.
    """

    envelopes: int = 2_000
    data_bytes: int = 512 * 1024 * 1024
    file_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """An event that goes into a file.

    Args:
        segments_id: the event under whose id its items are stored: itself, or the one that it repeats.
        number: which event of its envelope.
        emitter: its emitter's login.
        data_bytes: of its segments, estimated.
        tags: its headers and its partition key.
        envelope_headers: those of its envelope, packed.
    """

    envelope_id: UUID
    event_id: UUID
    segments_id: UUID
    position: int
    number: int
    event_type_id: int
    type_name: str
    emitter: str
    sealed_at: datetime
    items: int
    data_bytes: int
    tags: EventTags = NO_TAGS
    envelope_headers: bytes | None = None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file to be written. Its events are of one type and one day (UTC), in the order of the log."""

    file_id: UUID
    location: str
    events: tuple[PlannedEvent, ...]

    @property
    def items(self) -> int:
        return sum(event.items for event in self.events)


def read_archivable(connection: sa.Connection, after: int, scan: Scan, wanted: Round) -> list[PlannedEvent]:
    """Read the events of the next settled envelopes that are to be archived, in the order of the log.

    Args:
        after: a position; what is taken lies above it.
        scan: what is old enough.
    """
    owed = read_owed(connection)
    taken: list[Candidate] = []
    while len(taken) < wanted.envelopes and sum(each.data_bytes or 0 for each in taken) < wanted.data_bytes:
        free = next_free(connection, owed, after, PAGE_ENVELOPES, scan.only)
        if free is None:
            break
        page = _candidates(connection, free, scan)
        after = page[-1].position if page else free.last
        taken += settled_among(connection, kept_long_enough(connection, scan.rules, page), FOR_ARCHIVE, owed)
    return _events(connection, _fitting(taken, wanted))


def has_archivable(connection: sa.Connection, scan: Scan) -> bool:
    """Check whether anything is to be archived."""
    return bool(read_archivable(connection, 0, scan, Round(envelopes=1)))


def _candidates(connection: sa.Connection, free: FreePart, scan: Scan) -> list[Candidate]:
    envelope = model.envelope.c
    rows = connection.execute(
        sa.select(envelope.id, envelope.position, envelope.closed_at, envelope.bytes)
        .where(*is_within(free), envelope.pruned_at.is_(None), ~is_archived())
        # An event without items takes no space, and gives a file nothing.
        .where(envelope.closed_at < scan.rules.moments[-1], envelope["items"] > 0, *of_types(scan))
        .order_by(envelope.position)
        .limit(PAGE_ENVELOPES)
    )
    return [Candidate(*row, True) for row in rows]


def _fitting(taken: Iterable[Candidate], wanted: Round) -> dict[UUID, Candidate]:
    fitting: dict[UUID, Candidate] = {}
    total = 0
    for candidate in taken:
        if len(fitting) == wanted.envelopes or total >= wanted.data_bytes:
            break
        fitting[candidate.envelope_id] = candidate
        total += candidate.data_bytes or 0
    return fitting


def _events(connection: sa.Connection, envelopes: dict[UUID, Candidate]) -> list[PlannedEvent]:
    found: list[PlannedEvent] = []
    for some in portions(envelopes, PAGE_ENVELOPES):
        found += _events_of(connection, some)
    return found


def _events_of(connection: sa.Connection, envelope_ids: Sequence[UUID]) -> list[PlannedEvent]:
    envelope, event = model.envelope.c, model.event.c
    share = envelope.bytes * event["items"] / envelope["items"]
    rows = connection.execute(
        sa.select(
            *(event.envelope_id, event.id, sa.func.coalesce(event.origin_id, event.id), envelope.position),
            *(event.number, event.event_type_id, model.event_type.c.name, model.emitter.c.login),
            *(envelope.closed_at, event["items"], sa.cast(share, sa.BigInteger)),
            *(event.headers, event.partition_key, envelope.headers.label("envelope_headers")),
        )
        .join(model.envelope, envelope.id == event.envelope_id)
        .join(model.event_type, model.event_type.c.id == event.event_type_id)
        .join(model.emitter, model.emitter.c.id == envelope.emitter_id)
        .where(event.envelope_id.in_(envelope_ids), event["items"] > 0)
        .order_by(envelope.position, event.number)
    )
    return [
        PlannedEvent(*facts, tags=EventTags(headers, key), envelope_headers=of_envelope)  # type: ignore[misc]
        for *facts, headers, key, of_envelope in rows
    ]


def cut_files(events: Iterable[PlannedEvent], file_bytes: int) -> list[tuple[PlannedEvent, ...]]:
    """Cut events into files: each of one type and one day, and not much larger than ``file_bytes``."""
    files: list[tuple[PlannedEvent, ...]] = []
    open_files: dict[tuple[str, date], list[PlannedEvent]] = defaultdict(list)
    sizes: Counter[tuple[str, date]] = Counter()
    for event in events:
        kind = event.type_name, event.sealed_at.date()
        open_files[kind].append(event)
        sizes[kind] += event.data_bytes
        if sizes[kind] >= file_bytes:
            files.append(tuple(open_files.pop(kind)))
            del sizes[kind]
    return files + [tuple(of_file) for of_file in open_files.values()]


def note_files(connection: sa.Connection, run_id: UUID, plans: Sequence[FilePlan]) -> None:
    """Note which files a run is about to write, so that they are found should it die."""
    rows = [
        {
            "id": plan.file_id,
            "run_id": run_id,
            "event_type_id": plan.events[0].event_type_id,
            "location": plan.location,
            "state": WRITING,
            "first_position": plan.events[0].position,
            "last_position": plan.events[-1].position,
            "items": plan.items,
        }
        for plan in plans
    ]
    connection.execute(sa.insert(model.archive_file), rows)
