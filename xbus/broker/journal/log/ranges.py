"""Items cut into ranges of about the same size, so that they can be read side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.errors import JournalError

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
