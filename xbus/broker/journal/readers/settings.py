"""The settings of readers, and the ranges with which one begins."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from xbus.broker.journal.database.rows import NamedRow
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.log.slices import LAST_HASH
from xbus.broker.journal.readers.type_spans import LogPart, TypeSpan, read_spans, write_types
from xbus.model import reader, reader_range, reader_stretch, service, subscription


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
    batches = row.lease, row.batch_items, row.batch_bytes, row.batch_wait
    retry = RetrySettings(row.attempts, row.first_delay, row.longest_delay, row.jitter)
    spans = {each.name: each for each in types if (each.since, each.until) != (None, None)}
    return ReaderEntry(
        row.id, row.key, row.name, event_types, *batches, row.keeps, row.is_called, row.is_detached, retry, spans
    )


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
