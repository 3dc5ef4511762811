"""Large events for tests of bulk workers: put into a journal at once, with an attempt that is to be made."""

import hashlib
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice

import sqlalchemy as sa

from tests.support.journal import NOW, add_small_bus, looking
from xbus import model
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.log.planning import cut_output
from xbus.rpc.codec import pack_items, unpack_items
from xbus.states import AttemptState, EnvelopeState


@dataclass(frozen=True, slots=True)
class Put:
    """An event that was put, and an attempt at its output."""

    envelope_id: uuid.UUID
    event_id: uuid.UUID
    attempt_id: uuid.UUID
    items: int


def put_event(url: str, items: Iterable[bytes], per_segment: int = 100) -> Put:
    """Put a sealed event of type flights, and begin an attempt at what ``names`` makes of it.

    Args:
        url: of a database with the schema; the small bus is added where it is not there yet.
        items: what the event holds.
        per_segment: how many of them a segment holds.
    """
    envelope_id, event_id, attempt_id = (uuid.uuid4() for _ in range(3))
    number = data_bytes = 0
    with looking(url) as connection:
        if connection.execute(sa.select(model.emitter.c.id)).first() is None:
            add_small_bus(connection)
        _insert_event(connection, envelope_id, event_id)
        for data, count in _segments(items, per_segment):
            row = {"event_id": event_id, "first_index": number, "items": count, "data": data}
            connection.execute(sa.insert(model.segment).values(**row, hash=hashlib.sha256(data).digest()))
            number += count
            data_bytes += len(data)
        _seal(connection, envelope_id, event_id, number, data_bytes)
    begin_attempt(url, event_id, attempt_id)
    return Put(envelope_id, event_id, attempt_id, number)


def begin_attempt(url: str, event_id: uuid.UUID, attempt_id: uuid.UUID, node: str = "names") -> None:
    """Have an attempt begin at the output of a node for an event."""
    with looking(url) as connection:
        node_id = connection.execute(sa.select(model.node.c.id).where(model.node.c.name == node)).scalars().first()
        role_id = connection.execute(sa.select(model.role.c.id)).scalars().first()
        row = {"id": attempt_id, "event_id": event_id, "node_id": node_id, "role_id": role_id}
        times = {"started_at": NOW, "lease_until": NOW + timedelta(seconds=30)}
        connection.execute(sa.insert(model.bulk_attempt).values(**row, **times, state=AttemptState.BUILDING.value))


def read_all(url: str, attempt_id: uuid.UUID) -> list[tuple[int, bytes]]:
    """All items of an output, as index and bytes, in order; -1 for those without one."""
    found: list[tuple[int, bytes]] = []
    with looking(url) as connection:
        ranges = cut_output(connection, attempt_id, 1)
    with open_reader(url) as reader:
        for wanted in ranges:
            for segment in reader.segments(wanted):
                indexes: Sequence[int] = range(segment.first_index, segment.first_index + segment.items)
                if segment.sources is not None:
                    indexes = struct.unpack(f"<{segment.items}q", segment.sources)
                found += zip(indexes, unpack_items(segment.data, segment.items), strict=True)
    return found


@contextmanager
def changed(url: str, statement: sa.Executable) -> Iterator[None]:
    """With a statement executed before the block."""
    with looking(url) as connection:
        connection.execute(statement)
    yield


def _insert_event(connection: sa.Connection, envelope_id: uuid.UUID, event_id: uuid.UUID) -> None:
    emitter_id = connection.execute(sa.select(model.emitter.c.id)).scalars().first()
    event_type = model.event_type.c
    type_id = connection.execute(sa.select(event_type.id).where(event_type.name == "flights")).scalar_one()
    graph = model.graph.c
    graph_id = connection.execute(sa.select(graph.id).where(graph.event_type_id == type_id)).scalars().first()
    row = {"id": envelope_id, "emitter_id": emitter_id, "state": EnvelopeState.OPEN.value, "opened_at": NOW}
    connection.execute(sa.insert(model.envelope).values(**row))
    row = {"id": event_id, "envelope_id": envelope_id, "number": 1, "event_type_id": type_id, "graph_id": graph_id}
    connection.execute(sa.insert(model.event).values(**row, estimate=0))


def _segments(items: Iterable[bytes], per_segment: int) -> Iterator[tuple[bytes, int]]:
    left = iter(items)
    while piece := list(islice(left, per_segment)):
        yield pack_items(piece), len(piece)


def _seal(connection: sa.Connection, envelope_id: uuid.UUID, event_id: uuid.UUID, items: int, size: int) -> None:
    envelope, event = model.envelope, model.event
    position = connection.execute(sa.select(sa.func.coalesce(sa.func.max(envelope.c.position), 0))).scalar_one() + 1
    sealed = {"state": EnvelopeState.RECEIVED.value, "closed_at": NOW, "position": position, "events": 1}
    totals = {"items": items, "bytes": size, "hash": bytes(32)}
    connection.execute(sa.update(envelope).where(envelope.c.id == envelope_id).values(**sealed, **totals))
    connection.execute(sa.update(event).where(event.c.id == event_id).values(items=items))
