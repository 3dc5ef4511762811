"""The event types of readers, each with the part of the log in which a reader gets its events.

An operator's reader gets all events of its types from its place on. A program that subscribes to a topic gets what is
sent from then on; of a topic that it leaves, or that is removed, it still gets what was sent before.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from xbus import model

_ROW = model.reader_event_type.c
_SPAN = (model.event_type.c.name, _ROW.since, _ROW.until)


@dataclass(frozen=True, slots=True)
class TypeSpan:
    """An event type of a reader.

    Args:
        since: the first position of which it gets events.
        until: the last one, of a type that is none of its own any more; None for one that is.
    """

    type_id: int
    name: str
    since: int | None
    until: int | None

    def has(self, position: int) -> bool:
        """Check whether the reader gets events of this type at a position."""
        return (self.since is None or self.since <= position) and (self.until is None or position <= self.until)


@dataclass(frozen=True, slots=True)
class LogPart:
    """A span of positions, with an end or without, at which a reader gets events of some types."""

    types: frozenset[int]
    first: int
    until: int | None


def read_spans(connection: sa.Connection, service_id: int | None = None) -> dict[int, dict[int, TypeSpan]]:
    """Read the types of readers, of all where none is named: by reader and type."""
    columns: Sequence[sa.ColumnElement[Any]] = (_ROW.service_id, _ROW.event_type_id, *_SPAN)
    wanted = sa.select(*columns).join(model.event_type, model.event_type.c.id == _ROW.event_type_id)
    if service_id is not None:
        wanted = wanted.where(_ROW.service_id == service_id)
    found: dict[int, dict[int, TypeSpan]] = {}
    for reader_id, *span in connection.execute(wanted):
        found.setdefault(reader_id, {})[span[0]] = TypeSpan(*span)
    return found


def is_in_span(position: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """Select the positions at which a reader gets events of the type, in a statement that joins both."""
    begun = sa.or_(_ROW.since.is_(None), _ROW.since <= position)
    return sa.and_(begun, sa.or_(_ROW.until.is_(None), position <= _ROW.until))


def write_types(connection: sa.Connection, service_id: int, type_ids: Collection[int]) -> None:
    """Give a reader its types. Types that it keeps, and the rest that it still gets of others, stay as they are."""
    own = _ROW.service_id == service_id
    rows = connection.execute(sa.select(_ROW.event_type_id, _ROW.until).where(own))
    present = {row.event_type_id: row.until for row in rows}
    connection.execute(
        sa.delete(model.reader_event_type).where(own, _ROW.until.is_(None), _ROW.event_type_id.not_in(type_ids))
    )
    again = [each for each in type_ids if present.get(each) is not None]
    connection.execute(sa.update(model.reader_event_type).where(own, _ROW.event_type_id.in_(again)).values(until=None))
    new = [{"service_id": service_id, "event_type_id": each} for each in type_ids if each not in present]
    if new:
        connection.execute(sa.insert(model.reader_event_type), new)


def bound_spans(connection: sa.Connection, service_id: int, before: Mapping[int, TypeSpan], head: int) -> None:
    """Give a reader its former types up to the end of the log, and its new types behind it.

    If a type returns before the reader has got its former events, reading goes on from these.

    Args:
        before: its types before the change.
        head: the end of the log.
    """
    place = _place(connection, service_id)
    after = read_spans(connection, service_id).get(service_id, {})
    left = [
        {"service_id": service_id, "event_type_id": each.type_id, "since": each.since, "until": head}
        for each in before.values()
        if each.type_id not in after and place <= head
    ]
    if left:
        connection.execute(sa.insert(model.reader_event_type), left)
    former = {each.type_id for each in before.values() if each.until is None or each.until >= place}
    new = [each.type_id for each in after.values() if each.until is None and each.type_id not in former]
    passed = [each.type_id for each in after.values() if each.until is not None and each.until < place]
    own = _ROW.service_id == service_id
    if new:
        begins = sa.update(model.reader_event_type).where(own, _ROW.event_type_id.in_(new))
        connection.execute(begins.values(since=head + 1))
    if passed:
        connection.execute(sa.delete(model.reader_event_type).where(own, _ROW.event_type_id.in_(passed)))


def forget_left(connection: sa.Connection, service_id: int) -> None:
    """Have a reader that begins anew get its own types alone, and all of them from its place on."""
    own = _ROW.service_id == service_id
    connection.execute(sa.delete(model.reader_event_type).where(own, _ROW.until.is_not(None)))
    connection.execute(sa.update(model.reader_event_type).where(own).values(since=None))


def _place(connection: sa.Connection, service_id: int) -> int:
    """Give the position at which the range stands that is furthest behind, parked batches included."""
    stretch, of_reader = model.reader_stretch.c, model.reader_range.c
    furthest = (
        sa.select(sa.func.min(stretch.position))
        .join(model.reader_range, of_reader.id == stretch.range_id)
        .where(of_reader.service_id == service_id, of_reader.completed_at.is_(None))
    )
    return int(connection.execute(furthest).scalar_one())
