"""Surveys the log before a large read: its bounds, its content, and how to share the work out.

Positions stand between reads: whoever has read up to a position goes on behind it. Each function is one or a few short
reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import find_id
from xbus.broker.journal.log.reading import is_kept, read_head
from xbus.errors import JournalError
from xbus.model.base import UNREADABLE

# -- ranges ------------------------------------------------------------------------------------------------------------
# Items cut into ranges of about the same size, so that they can be read side by side.

GONE = "segments_gone"
"""The code of the error of those who come too late: what they want to read was removed meanwhile."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Segments that follow each other, of an event or of a bulk worker's output.

    Args:
        source: the event under whose id the segments lie, or the attempt that wrote them.
        is_output: whether it is an attempt.
        first: the first_index of an event's first segment in the range; an output's first part.
        last: the same of the last one, which belongs to it too.
        items: how many all of them hold.
    """

    source: UUID
    is_output: bool
    first: int
    last: int
    items: int


def read_items(connection: sa.Connection, event_id: UUID) -> int:
    """Read the number of an event's items.

    Raises:
        JournalError: it is not there, or still open.
    """
    items = connection.execute(sa.select(model.event.c["items"]).where(model.event.c.id == event_id)).scalar()
    if items is None:
        raise JournalError(f"event {event_id} is not there to be read", "see xbus envelope show", code=GONE)
    return int(items)


def cut_event(connection: sa.Connection, event_id: UUID, parts: int) -> list[SegmentRange]:
    """Cut an event between its segments.

    Args:
        event_id: of an event that is ended; where it repeats another, that one's segments are cut.
        parts: how many ranges are wished for; fewer come where it has fewer segments, none where it has no items.

    Raises:
        JournalError: it is not there, still open, or its segments were removed.
    """
    event, segment = model.event.c, model.log_segment.c
    statement = sa.select(sa.func.coalesce(event.origin_id, event.id), event["items"]).where(event.id == event_id)
    row = connection.execute(statement).one_or_none()
    if row is None or row[1] is None:
        raise JournalError(f"event {event_id} is not there to be read", "see xbus envelope show", code=GONE)
    source, items = row
    # Its segments follow each other without a gap, so the index alone says how many items each has.
    starts = sa.select(segment.first_index).where(segment.event_id == source).order_by(segment.first_index)
    firsts = list(connection.execute(starts).scalars())
    if not items:
        return []
    if not firsts or firsts[0] != 0:
        raise JournalError(f"segments of event {source} were removed", code=GONE)
    sizes = [after - first for first, after in zip(firsts, [*firsts[1:], items], strict=True)]
    return [
        SegmentRange(source, False, firsts[start], firsts[end - 1], sum(sizes[start:end]))
        for start, end in cut(sizes, parts)
    ]


def cut_output(connection: sa.Connection, attempt_id: UUID, parts: int) -> list[SegmentRange]:
    """Cut a bulk worker's output between its parts.

    Args:
        attempt_id: of an attempt that is ready.
        parts: how many ranges are wished for; fewer come where it has fewer parts, none where it has no items.
    """
    segment = model.bulk_segment.c
    statement = (
        sa.select(segment.part, sa.func.sum(segment["items"]))
        .where(segment.attempt_id == attempt_id)
        .group_by(segment.part)
        .order_by(segment.part)
    )
    found = [(part, int(items)) for part, items in connection.execute(statement)]
    sizes = [items for _, items in found]
    return [
        SegmentRange(attempt_id, True, found[start][0], found[end - 1][0], sum(sizes[start:end]))
        for start, end in cut(sizes, parts)
    ]


def cut(sizes: Sequence[int], parts: int) -> Iterator[tuple[int, int]]:
    """Cut a row of things into runs, each of about the same size.

    Args:
        parts: the wished number of runs; never more come.

    Yields:
        Of each run the place of its first thing, and the place behind its last.
    """
    left = sum(sizes)
    start = taken = 0
    for place, size in enumerate(sizes):
        # Cut where the run comes nearest to its share of what is left.
        if place > start and parts > 1 and (2 * taken + size) * parts > 2 * left:
            yield start, place
            start, left, taken, parts = place, left - taken, 0, parts - 1
        taken += size
    if start < len(sizes):
        yield start, len(sizes)


PAGE_EVENTS = 5_000

LARGE_ITEMS = 10_000
"""Items from which on an event is cut between its segments if it exceeds the share of one part."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A part of the log of one event type, for one reader; picklable.

    Args:
        after: a position; the range begins above it.
        until: its last position.
        items: the number of its items.
        number: for a part of an event: the event's number in its envelope, whose position is ``until``.
        first: the index of the first item of that part.
        end: the index behind its last one.
    """

    type_id: int
    after: int
    until: int
    items: int
    number: int | None = None
    first: int = 0
    end: int = 0


def read_type_id(connection: sa.Connection, name: str) -> int | None:
    """Read the id of the event type of this name; None if no type has it."""
    return find_id(connection, model.event_type.c.name, name)


def read_first(connection: sa.Connection) -> int | None:
    """Read the lowest position whose envelope still has its items; None if no envelope has."""
    envelope = model.envelope.c
    first: int | None = connection.execute(
        sa.select(envelope.position)
        .where(envelope.position > 0, envelope.pruned_at.is_(None))
        .order_by(envelope.position)
        .limit(1)
    ).scalar_one_or_none()
    return first


def read_oldest(connection: sa.Connection) -> int | None:
    """Read the lowest position whose envelope has its items in the journal or in an archive; None if none has."""
    position = model.envelope.c.position
    wanted = sa.select(position).where(position > 0, is_kept()).order_by(position).limit(1)
    oldest: int | None = connection.execute(wanted).scalar_one_or_none()
    return oldest


def count_missing(connection: sa.Connection, after: int, until: int) -> int:
    """Count the envelopes above ``after`` and up to ``until`` that no longer have their items.

    Nobody knows the types of their events any more.
    """
    envelope = model.envelope.c
    there = sa.select(sa.func.count()).where(
        envelope.position > after, envelope.position <= until, envelope.pruned_at.is_(None)
    )
    last = min(until, read_head(connection))
    return max(0, last - after) - int(connection.execute(there).scalar_one())


def position_before(connection: sa.Connection, moment: datetime) -> int:
    """Find the position before the first envelope sealed at a moment or later; 0 if none comes before.

    Positions are given in the order of commits, and moments a little before: near each other the two may differ.
    An envelope whose moment can't be read lies before the moment if a readable one behind it does.
    """
    envelope = model.envelope.c
    nearest = (
        sa.select(envelope.position, envelope.closed_at)
        .where(envelope.position >= sa.bindparam("low"), envelope.position <= sa.bindparam("high"))
        .order_by(envelope.position)
        .limit(1)
    )
    low, high = 1, read_head(connection)
    # All below low is earlier, all above high is not.
    while low <= high:
        middle = (low + high) // 2
        row = connection.execute(nearest, {"low": middle, "high": high}).one_or_none()
        while row is not None and row.closed_at == UNREADABLE:
            row = connection.execute(nearest, {"low": row.position + 1, "high": high}).one_or_none()
        if row is None or row.closed_at >= moment:
            high = middle - 1
        else:
            low = row.position + 1
    return high


def has_events(connection: sa.Connection, type_id: int, after: int, until: int) -> bool:
    """Check whether an event of a type is above ``after`` and up to ``until``."""
    wanted = {"type_id": type_id, "after": after, "number": _LAST, "until": until}
    return connection.execute(_EVENTS.limit(1), wanted).first() is not None


def count_items(connection: sa.Connection, type_id: int, after: int, until: int) -> int:
    """Count the items of the events of a type above ``after`` and up to ``until``."""
    wanted = {"type_id": type_id, "after": after, "until": until}
    return int(connection.execute(_ITEMS, wanted).scalar_one())


def read_end(
    connection: sa.Connection, type_id: int, after: int, until: int, max_items: int, page_events: int = PAGE_EVENTS
) -> int:
    """Find how far to read for so many items of a type, without cutting envelopes.

    Returns:
        The highest position up to which at most ``max_items`` are above ``after``, or the first one with any; ``until``
        if all up to it have fewer.
    """
    total = 0
    end = after
    for position, events in groupby(_events(connection, type_id, after, until, page_events), _position):
        size = sum(event.items for event in events)
        if total and total + size > max_items:
            return end
        total += size
        end = position
    return until


def cut_log(
    connection: sa.Connection, type_id: int, after: int, until: int, parts: int, large_items: int = LARGE_ITEMS
) -> list[LogRange]:
    """Share a part of the log out into ranges of about the same number of items, in order.

    It cuts large events between their segments.

    Args:
        parts: the wished number of ranges; about so many come, none without items.
    """
    envelopes = [list(of_one) for _, of_one in groupby(_events(connection, type_id, after, until), _position)]
    sizes = [sum(event.items for event in events) for events in envelopes]
    share = max(large_items, -(-sum(sizes) // parts))
    ranges: list[LogRange] = []
    for is_large, run in groupby(zip(envelopes, sizes, strict=True), lambda envelope: envelope[1] > share):
        found = list(run)
        if is_large:
            for events, _ in found:
                for event in events:
                    ranges += _of_large(connection, type_id, event, share)
        else:
            ranges += _of_small(type_id, [(events[0].position, size) for events, size in found], share)
    return ranges


def _of_small(type_id: int, envelopes: Sequence[tuple[int, int]], share: int) -> Iterator[LogRange]:
    """Make ranges of whole envelopes from their positions and items."""
    sizes = [size for _, size in envelopes]
    for start, end in cut(sizes, max(1, round(sum(sizes) / share))):
        items = sum(sizes[start:end])
        if items:
            yield LogRange(type_id, envelopes[start][0] - 1, envelopes[end - 1][0], items)


def _of_large(connection: sa.Connection, type_id: int, event: "_Event", share: int) -> Iterator[LogRange]:
    """Make ranges of a single event."""
    for part in cut_event(connection, event.event_id, max(1, round(event.items / share))):
        end = part.first + part.items
        yield LogRange(type_id, event.position - 1, event.position, part.items, event.number, part.first, end)


@dataclass(frozen=True, slots=True)
class _Event:
    position: int
    number: int
    event_id: UUID
    items: int


def _position(event: _Event) -> int:
    return event.position


def _events(
    connection: sa.Connection, type_id: int, after: int, until: int, page_events: int = PAGE_EVENTS
) -> Iterator[_Event]:
    number = _LAST
    wanted = {"type_id": type_id, "until": until, "rows": page_events}
    while found := connection.execute(_EVENTS, {**wanted, "after": after, "number": number}).all():
        for row in found:
            yield _Event(*row)
        after, number = found[-1][:2]


_LAST = 2**31 - 1
"""No event has a higher number."""

_EVENT = model.log_event.c
_EVENTS = (
    sa.select(_EVENT.position, _EVENT.number, _EVENT.event_id, _EVENT["items"])
    .where(_EVENT.position >= sa.bindparam("after"), _EVENT.position <= sa.bindparam("until"))
    .where(sa.or_(_EVENT.position > sa.bindparam("after"), _EVENT.number > sa.bindparam("number")))
    .where(_EVENT.pruned_at.is_(None), _EVENT.event_type_id == sa.bindparam("type_id"))
    .order_by(_EVENT.position, _EVENT.number)
    .limit(sa.bindparam("rows", type_=sa.Integer))
)
_ITEMS = (
    sa.select(sa.func.coalesce(sa.func.sum(_EVENT["items"]), 0))
    .where(_EVENT.position > sa.bindparam("after"), _EVENT.position <= sa.bindparam("until"))
    .where(_EVENT.pruned_at.is_(None), _EVENT.event_type_id == sa.bindparam("type_id"))
)
