"""A part of the log, page by page: the envelopes with events of one type, as a replay sends them again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.envelopes import is_archived
from xbus.envelope import EnvelopeHead
from xbus.headers import NO_TAGS, EventTags

PAGE_ENVELOPES = 200
"""Envelopes of a page. More cost fewer commits, and keep the broker's own commits waiting for longer."""

PAGE_EVENTS = 2_000
"""A page ends before its envelopes hold more events than this. The first envelope always comes, as it is never cut."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the log, and which events of it are wanted.

    Args:
        after: a position; the part lies above it.
        until: its last position.
        type_id: the event type.
        graphs: the versions of the type's graph whose events are wanted; None for all.
    """

    after: int
    until: int
    type_id: int
    graphs: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event that is wanted; its own segments hold its items."""

    event_id: UUID
    estimate: int
    items: int
    tags: EventTags = NO_TAGS


@dataclass(frozen=True, slots=True)
class FoundEnvelope:
    """An envelope that an emitter sent, with those of its events that are wanted.

    Args:
        here: whether its items are in the journal.
        archived: whether an archive has its items instead. If neither has, the bus is removing them.
        total: the number of its events, wanted or not.
        data_bytes: of all of them.
        hash: of all of them.
    """

    envelope_id: UUID
    position: int
    closed_at: datetime
    emitter_id: int
    head: EnvelopeHead
    here: bool
    archived: bool
    total: int
    data_bytes: int
    hash: bytes
    events: tuple[FoundEvent, ...]

    @property
    def is_whole(self) -> bool:
        """True if all of its events are wanted."""
        return len(self.events) == self.total

    @property
    def items(self) -> int:
        """The number of items of the wanted events."""
        return sum(event.items for event in self.events)


@dataclass(frozen=True, slots=True)
class Page:
    """The next envelopes of a part, in position order.

    Args:
        upto: all of the part up to this position is dealt with.
    """

    upto: int
    envelopes: Sequence[FoundEnvelope]


def read_page(connection: sa.Connection, part: Part, after: int) -> Page:
    """Read the next envelopes of a part.

    Envelopes that repeat others are left out: they bring no data that the first ones do not bring.

    Args:
        after: a position of the part; the page begins above it.
    """
    rows = connection.execute(_envelopes(part, after)).all()
    page = _within(rows)
    events = _read_events(connection, part, [row.id for row in page])
    found = [
        FoundEnvelope(
            *(row.id, row.position, row.closed_at, row.emitter_id),
            head=EnvelopeHead(*(row._mapping[column.name] for column in model.ENVELOPE_HEAD)),
            here=row.pruned_at is None,
            archived=row.archived,
            total=row.events,
            data_bytes=row.bytes,
            hash=bytes(row.hash),
            events=tuple(events.get(row.id, ())),
        )
        for row in page
    ]
    is_last = len(page) == len(rows) < PAGE_ENVELOPES
    return Page(part.until if is_last else page[-1].position, found)


def count_removed(connection: sa.Connection, after: int, until: int) -> int:
    """Count the envelopes of a part of the log that retention has removed; their types are no longer known."""
    envelope = model.envelope.c
    is_gone = sa.and_(envelope.pruned_at.is_not(None), ~_is_only_archived())
    there = sa.select(sa.func.count()).where(envelope.position > after, envelope.position <= until, ~is_gone)
    return until - after - int(connection.execute(there).scalar_one())


def _envelopes(part: Part, after: int) -> "sa.Select[tuple[object, ...]]":
    envelope = model.envelope.c
    return (
        sa.select(model.envelope, _is_only_archived().label("archived"))
        .where(envelope.position > after, envelope.position <= part.until, envelope.origin_id.is_(None))
        .where(sa.exists().where(model.event.c.envelope_id == envelope.id, *_is_wanted(part)))
        .order_by(envelope.position)
        .limit(PAGE_ENVELOPES)
    )


def _is_wanted(part: Part) -> list[sa.ColumnElement[bool]]:
    event = model.event.c
    wanted = [event.event_type_id == part.type_id]
    return wanted if part.graphs is None else [*wanted, event.graph_id.in_(sorted(part.graphs))]


def _is_only_archived() -> sa.ColumnElement[bool]:
    return sa.and_(model.envelope.c.pruned_at.is_not(None), is_archived())


def _within(rows: "Sequence[sa.Row[tuple[object, ...]]]") -> "Sequence[sa.Row[tuple[object, ...]]]":
    """Cut rows to those that together have no more events than a page may."""
    events = 0
    for number, row in enumerate(rows):
        events += row.events
        if number and events > PAGE_EVENTS:
            return rows[:number]
    return rows


def _read_events(connection: sa.Connection, part: Part, envelope_ids: Collection[UUID]) -> dict[UUID, list[FoundEvent]]:
    event = model.event.c
    statement = (
        sa.select(event.envelope_id, event.id, event.estimate, event["items"], event.headers, event.partition_key)
        .where(event.envelope_id.in_(envelope_ids), *_is_wanted(part))
        .order_by(event.envelope_id, event.number)
    )
    found: dict[UUID, list[FoundEvent]] = {}
    for envelope_id, event_id, estimate, items, *tags in connection.execute(statement):
        found.setdefault(envelope_id, []).append(FoundEvent(event_id, estimate, items, EventTags(*tags)))
    return found
