"""The settings of readers, and the ranges with which one begins."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from xbus.broker.journal.database.rows import NamedRow
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.broker.journal.log.slices import LAST_HASH
from xbus.model import reader, reader_event_type, reader_range, reader_stretch, service, subscription


@dataclass(frozen=True, slots=True)
class ReaderEntry:
    """A reader in use: its settings, see ``model.reader``.

    Args:
        id: of its service.
        key: how a running broker knows it, see ``model.service``.
        event_types: the ids of the types that it reads.
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


def read_readers(connection: sa.Connection) -> list[ReaderEntry]:
    """Read the readers in use, by name."""
    types: dict[int, set[int]] = {}
    for service_id, type_id in connection.execute(
        sa.select(reader_event_type.c.service_id, reader_event_type.c.event_type_id)
    ):
        types.setdefault(service_id, set()).add(type_id)
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
    return [_entry(row, frozenset(types.get(row.id, ()))) for row in rows]


def _entry(row: NamedRow, event_types: frozenset[int]) -> ReaderEntry:
    batches = row.lease, row.batch_items, row.batch_bytes, row.batch_wait
    retry = RetrySettings(row.attempts, row.first_delay, row.longest_delay, row.jitter)
    return ReaderEntry(
        row.id, row.key, row.name, event_types, *batches, row.keeps, row.is_called, row.is_detached, retry
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
    connection.execute(sa.delete(reader_event_type).where(reader_event_type.c.service_id == service_id))
    for type_id in event_types:
        connection.execute(sa.insert(reader_event_type).values(service_id=service_id, event_type_id=type_id))
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
