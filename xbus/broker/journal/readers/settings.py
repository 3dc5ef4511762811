"""The settings of readers, and the ranges with which one begins."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, value_of
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.log.slices.values import LAST_HASH
from xbus.model import reader, reader_range, reader_stretch, service, subscription

# -- type spans --------------------------------------------------------------------------------------------------------
# The event types of readers, each with the part of the log in which a reader gets its events.
#
# An operator's reader gets all events of its types from its place on. A program that subscribes to a topic gets what is
# sent from then on; of a topic that it leaves, or that is removed, it still gets what was sent before.

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


@dataclass(frozen=True, slots=True)
class ReaderEntry:
    """A reader in use: its settings, see ``model.reader``.

    Args:
        id: of its service.
        key: how a running broker knows it, see ``model.service``.
        event_types: the ids of the types that it reads.
        spans: the types of which it gets a part of the log, by their names; some are none of its own any more.
        is_called: whether it is a subscription's, which gateways read.
        is_detached: whether retention waits for it no longer, as it lags too far.
        retry: the wishes of a subscription for batches that were not taken.
    """

    id: int
    key: str
    name: str
    event_types: frozenset[int]
    lease: float
    batch_items: int
    batch_bytes: int
    batch_wait: float
    keeps: bool
    is_called: bool = False
    is_detached: bool = False
    retry: RetrySettings = field(default_factory=RetrySettings)
    spans: Mapping[str, TypeSpan] = field(default_factory=dict)

    @property
    def read_types(self) -> frozenset[int]:
        """The ids of all types of which it gets events, its former types included."""
        return self.event_types | {span.type_id for span in self.spans.values()}

    def parts(self, position: int) -> Iterator[LogPart]:
        """Iterate over the parts of the log from a position on of which it gets events, each with its types."""
        limited = {span.type_id: span for span in self.spans.values()}
        types: dict[tuple[int, int | None], set[int]] = {}
        for type_id in self.read_types:
            span = limited.get(type_id)
            first, until = (position, None) if span is None else (max(position, span.since or 0), span.until)
            if until is None or first <= until:
                types.setdefault((first, until), set()).add(type_id)
        return (LogPart(frozenset(found), *bounds) for bounds, found in types.items())

    def gets(self, type_name: str, position: int) -> bool:
        """Check whether it gets an event of one of its types."""
        span = self.spans.get(type_name)
        return span is None or span.has(position)


def read_readers(connection: sa.Connection) -> list[ReaderEntry]:
    """Read the readers in use, by name."""
    types = read_spans(connection)
    settings = (reader.c.lease, reader.c.batch_items, reader.c.batch_bytes, reader.c.batch_wait, reader.c.keeps)
    is_called = sa.exists().where(subscription.c.service_id == service.c.id).label("is_called")
    is_detached = reader.c.detached_at.is_not(None).label("is_detached")
    retry = (service.c.attempts, service.c.first_delay, service.c.longest_delay, service.c.jitter)
    rows = connection.execute(
        sa.select(
            *(service.c.id, service.c.key, service.c.name, *settings, is_called, is_detached),
            *retry,
        )
        .join(reader, reader.c.service_id == service.c.id)
        .where(service.c.removed_at.is_(None))
        .order_by(service.c.name)
    )
    return [_entry(row, types.get(row.id, {}).values()) for row in rows]


def _entry(row: NamedRow, types: Collection[TypeSpan]) -> ReaderEntry:
    event_types = frozenset(each.type_id for each in types if each.until is None)
    spans = {each.name: each for each in types if (each.since, each.until) != (None, None)}
    return value_of(ReaderEntry, row, event_types=event_types, retry=value_of(RetrySettings, row), spans=spans)


def write_settings(
    connection: sa.Connection, service_id: int, settings: Mapping[str, object], event_types: Sequence[int]
) -> bool:
    """Bring the settings of a reader to what an administrator wants.

    Args:
        settings: the columns of ``model.reader``.
        event_types: the ids of the types that it reads.

    Returns:
        Whether the reader is new.
    """
    changed = sa.update(reader).where(reader.c.service_id == service_id).values(settings)
    is_new = not connection.execute(changed).rowcount
    if is_new:
        connection.execute(sa.insert(reader).values(service_id=service_id, **settings))
    write_types(connection, service_id, event_types)
    return is_new


def make_ranges(connection: sa.Connection, service_id: int, number: int, position: int) -> None:
    """Cut the ring into ranges of about the same length, all before an envelope."""
    bounds = [(LAST_HASH + 1) * each // number for each in range(number + 1)]
    for first, end in itertools.pairwise(bounds):
        span = {"first": f"{first:016x}", "last": f"{end - 1:016x}"}
        range_id = connection.execute(
            sa.insert(reader_range).values(service_id=service_id, **span).returning(reader_range.c.id)
        ).scalar_one()
        place = {"position": position, "event": 0, "item": 0}
        connection.execute(sa.insert(reader_stretch).values(range_id=range_id, **span, **place))
