"""Plans the next files of an archive."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.archive.runs import WRITING
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.envelopes import is_archived
from xbus.broker.journal.retention.needed import FOR_ARCHIVE, Candidate, settled_among
from xbus.broker.journal.retention.owed import FreePart, next_free, read_owed
from xbus.broker.journal.retention.rules import kept_long_enough
from xbus.broker.journal.retention.search import Scan, is_within, of_types
from xbus.headers import NO_TAGS, EventTags

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
            event.envelope_id,
            event.id,
            sa.func.coalesce(event.origin_id, event.id),
            envelope.position,
            event.number,
            event.event_type_id,
            model.event_type.c.name,
            model.emitter.c.login,
            envelope.closed_at,
            event["items"],
            sa.cast(share, sa.BigInteger),
            event.headers,
            event.partition_key,
            envelope.headers.label("envelope_headers"),
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
