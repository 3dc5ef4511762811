"""Counts the events of each type that the journal has, by the log's table of contents, and reads secret fields."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.contents import read_contents_end
from xbus.broker.journal.log.reading import read_head

MOST_READ = 50_000
"""So many positions are read that are not listed yet. More would take long, and the broker lists them soon."""


@dataclass(frozen=True, slots=True)
class TypeCount:
    """An event type and what the journal has of it.

    Args:
        recent: how many of its events were sealed since a moment, estimated within a block of the log.
        newest_at: when the last one was; None where there is none.
    """

    name: str
    events: int
    items: int
    recent: int
    newest_at: datetime | None


@dataclass(frozen=True, slots=True)
class TypeCounts:
    """All types in use, by name; ``upto`` is the position up to which was counted."""

    types: Sequence[TypeCount]
    upto: int
    head: int


def read_secret_fields(connection: sa.Connection) -> Mapping[str, frozenset[str]]:
    """Read the paths of secret fields, by the name of each event type that has some.

    Former types are in it, too: envelopes of them are still there.
    """
    of_type = model.event_type.c
    rows = connection.execute(sa.select(of_type.name, of_type.secret).where(of_type.secret != ""))
    return {name: frozenset(read_paths(written)) for name, written in rows}


def read_paths(written: str) -> tuple[str, ...]:
    """Read the paths in the column ``secret``, sorted."""
    return tuple(sorted(written.splitlines()))


def write_paths(paths: Collection[str]) -> str:
    """Write paths as the column ``secret`` has them: a line each."""
    return "\n".join(sorted(paths))


def count_types(connection: sa.Connection, since: datetime) -> TypeCounts:
    """Count what is received and was not removed, whole blocks of the log at a time.

    It reads the table of contents and what is not listed yet, ``MOST_READ`` positions at the most.
    """
    contents, envelope, event = model.contents.c, model.envelope.c, model.event.c
    head, end = read_head(connection), read_contents_end(connection)
    upto = min(head, end + MOST_READ)
    type_of = model.graph.c.event_type_id
    sums = sa.func.sum(contents.events), sa.func.sum(contents["items"]), sa.func.max(contents.newest_at)
    listed = sa.select(type_of, *sums).select_from(model.contents).join(model.graph).group_by(type_of)
    rest = (
        sa.select(event.event_type_id, sa.func.count(), sa.func.sum(event["items"]), sa.func.max(envelope.closed_at))
        .join(model.envelope, envelope.id == event.envelope_id)
        .where(envelope.position > end, envelope.position <= upto)
        .group_by(event.event_type_id)
    )
    found: defaultdict[int, list[Sequence[Any]]] = defaultdict(list)
    for row in (*connection.execute(listed), *connection.execute(rest)):
        found[row[0]].append(row)
    recent = _count_recent(connection, since, end, upto)
    in_use = sa.select(model.event_type.c.id, model.event_type.c.name).where(model.event_type.c.removed_at.is_(None))
    counts = []
    for type_id, name in connection.execute(in_use.order_by(model.event_type.c.name)):
        of_type = found[type_id]
        events, items = sum(int(row[1]) for row in of_type), sum(int(row[2]) for row in of_type)
        newest_at = max((row[3] for row in of_type), default=None)
        counts.append(TypeCount(name, events, items, round(recent[type_id]), newest_at))
    return TypeCounts(counts, upto, head)


def _count_recent(connection: sa.Connection, since: datetime, end: int, upto: int) -> Mapping[int, float]:
    """Events that were sealed since a moment, by type; of a block that was begun before, a share of them."""
    contents, envelope, event = model.contents.c, model.envelope.c, model.event.c
    type_of = model.graph.c.event_type_id
    listed = sa.select(type_of, contents.events, contents.oldest_at, contents.newest_at).select_from(model.contents)
    recent: defaultdict[int, float] = defaultdict(float)
    for type_id, events, oldest_at, newest_at in connection.execute(
        listed.join(model.graph).where(contents.newest_at >= since)
    ):
        span = (newest_at - oldest_at).total_seconds()
        share = (newest_at - since).total_seconds() / span if oldest_at < since and span else 1
        recent[type_id] += events * share
    rest = (
        sa.select(event.event_type_id, sa.func.count())
        .join(model.envelope, envelope.id == event.envelope_id)
        .where(envelope.position > end, envelope.position <= upto, envelope.closed_at >= since)
        .group_by(event.event_type_id)
    )
    for type_id, events in connection.execute(rest):
        recent[type_id] += events
    return recent
