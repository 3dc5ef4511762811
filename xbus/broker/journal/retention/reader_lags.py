"""Finds the readers that lag further than they may, and detaches them.

A reader lacks what its range furthest behind has not settled: other ranges may have read some of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import count_listed, find_listed, read_contents_end
from xbus.broker.journal.log.planning import position_before, read_oldest
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import LogPart, ReaderEntry, read_readers
from xbus.broker.journal.readers.status import find_waiting_since
from xbus.broker.journal.retention.lagging import MOST_SKIPPED, WhenBehind
from xbus.clock import span
from xbus.model.base import UNREADABLE


@dataclass(frozen=True, slots=True)
class BehindReader:
    """A reader that is further behind than it may be.

    Args:
        upto: what it has not read up to this position is beyond its limit: with a number at the most
            :data:`MOST_SKIPPED` envelopes, with an age all that are older.
        passes: how many envelopes that are.
        told: the limit and how far it is exceeded, as the end of a sentence.
    """

    entry: ReaderEntry
    when_behind: WhenBehind
    upto: int
    passes: int
    told: str


def find_behind(connection: sa.Connection, now: datetime) -> list[BehindReader]:
    """Find the readers that are beyond their limit; where none has one, it costs one look at an empty table."""
    limits = {row.subject_id: row for row in connection.execute(_LIMITS).all()}
    found = []
    for entry in read_readers(connection) if limits else ():
        limit = limits.get(entry.id)
        ranges = read_ranges(connection, [entry.id]) if limit is not None else []
        if limit is None or not ranges:
            continue
        place = min(each.place for each in ranges)
        beyond = (
            _beyond_age(connection, entry, place, now, limit.seconds)
            if limit.seconds is not None
            else _beyond_number(connection, entry, place, limit.envelopes)
        )
        if beyond is not None:
            found.append(BehindReader(entry, limit.when_behind, *beyond))
    return found


def _beyond_age(
    connection: sa.Connection, entry: ReaderEntry, place: Place, now: datetime, seconds: float
) -> tuple[int, int, str] | None:
    before = now - span(seconds)
    oldest = find_waiting_since(connection, entry, place)
    # A moment that can't be read is not old.
    if oldest is None or not UNREADABLE < oldest < before:
        return None
    told = f"the oldest event that it has not read was sealed {oldest:%Y-%m-%d %H:%M} UTC"
    upto = position_before(connection, before)
    passes = sum(_count(connection, part, upto) for part in entry.parts(place.position))
    return upto, passes, f"{told}, and max_lag allows {span(seconds)}"


def _beyond_number(
    connection: sa.Connection, entry: ReaderEntry, place: Place, most: int
) -> tuple[int, int, str] | None:
    parts = [*entry.parts(max(place.position, read_oldest(connection) or 0))]
    head = read_head(connection)
    lacks = sum(_count(connection, part, head) for part in parts)
    beyond = min(lacks - most, MOST_SKIPPED)
    if beyond <= 0:
        return None
    # An envelope with events of two parts counts for both.
    found = sorted({position for part in parts for position in _first(connection, part, beyond, head)})[:beyond]
    return found[-1], len(found), f"it lacks some {lacks:,} envelopes, and max_lag allows {most:,}"


def _count(connection: sa.Connection, part: LogPart, upto: int) -> int:
    """Count the envelopes of a part up to a position."""
    graphs, after, last, listed = _bounds(connection, part, upto)
    rest = sa.select(sa.func.count()).select_from(_rest(graphs, listed, last).subquery())
    return count_listed(connection, graphs, after, listed) + int(connection.execute(rest).scalar_one())


def _first(connection: sa.Connection, part: LogPart, most: int, upto: int) -> Sequence[int]:
    """Find the positions of the first envelopes of a part."""
    graphs, after, last, listed = _bounds(connection, part, upto)
    found = [*find_listed(connection, graphs, after, most, listed).positions]
    if len(found) < most:
        found += connection.execute(_rest(graphs, listed, last).limit(most - len(found))).scalars().all()
    return found


def _bounds(connection: sa.Connection, part: LogPart, upto: int) -> tuple[Sequence[int], int, int, int]:
    """Give the graphs of a part, and three positions: before it, its last, and the last listed one."""
    graphs = connection.execute(_GRAPHS, {"types": sorted(part.types)}).scalars().all()
    after, last = part.first - 1, upto if part.until is None else min(part.until, upto)
    return graphs, after, last, max(after, min(last, read_contents_end(connection)))


def _rest(graphs: Sequence[int], after: int, upto: int) -> sa.Select[int]:
    """Select the positions of envelopes that the table of contents does not list yet."""
    envelope, event = model.envelope.c, model.event.c
    return (
        sa.select(envelope.position)
        .where(
            envelope.position > after,
            envelope.position <= upto,
            sa.exists().where(event.envelope_id == envelope.id, event.graph_id.in_(list(graphs))),
        )
        .order_by(envelope.position)
    )


def set_detached(connection: sa.Connection, service_id: int, at: datetime | None) -> None:
    """Have retention wait for a reader no longer, or again with None."""
    connection.execute(sa.update(model.reader).where(model.reader.c.service_id == service_id).values(detached_at=at))


_LIMIT = model.lag_limit.c
_LIMITS = sa.select(model.lag_limit).where(_LIMIT.kind == "reader")
_GRAPHS = sa.select(model.graph.c.id).where(model.graph.c.event_type_id.in_(sa.bindparam("types", expanding=True)))
