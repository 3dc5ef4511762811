"""Logs of many envelopes, put into the database as they would be there: sealing each would take long."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import sqlalchemy as sa

from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.log.contents import list_blocks, read_unlisted
from xbus.states import EnvelopeState

ROWS = 10_000


def newest_graphs(connection: sa.Connection) -> Mapping[str, int]:
    """The id of the newest version of each type's graph, by the type's name."""
    graph = model.graph.c
    rows = connection.execute(
        sa.select(model.event_type.c.name, sa.func.max(graph.id)).join(model.graph).group_by(model.event_type.c.name)
    )
    return dict(rows.all())


def put_log(connection: sa.Connection, envelopes: Sequence[Sequence[int]], at: datetime = NOW) -> list[uuid.UUID]:
    """Add received envelopes at the end of the log, sealed a second after each other.

    Args:
        envelopes: for each the graphs of its events, which have no items.

    Returns:
        Their ids.
    """
    last = connection.execute(sa.select(model.head.c.position)).scalar_one()
    emitter_id = connection.execute(sa.select(model.emitter.c.id).limit(1)).scalar_one()
    types = {row.id: row.event_type_id for row in connection.execute(sa.select(model.graph))}
    ids = [uuid.uuid4() for _ in envelopes]
    rows = [
        {
            "id": envelope_id,
            "emitter_id": emitter_id,
            "state": EnvelopeState.RECEIVED.value,
            "opened_at": at,
            "closed_at": at + timedelta(seconds=place),
            "position": last + 1 + place,
            "events": len(graphs),
            "items": 0,
            "bytes": 0,
            "hash": b"h" * 32,
        }
        for place, (envelope_id, graphs) in enumerate(zip(ids, envelopes, strict=True))
    ]
    events = [
        {
            "id": uuid.uuid4(),
            "envelope_id": envelope_id,
            "number": number,
            "event_type_id": types[graph_id],
            "graph_id": graph_id,
            "estimate": 0,
            "items": 0,
        }
        for envelope_id, graphs in zip(ids, envelopes, strict=True)
        for number, graph_id in enumerate(graphs, 1)
    ]
    for table, found in ((model.envelope, rows), (model.event, events)):
        for page in _pages(found):
            connection.execute(sa.insert(table), page)
    connection.execute(sa.update(model.head).values(position=last + len(envelopes)))
    return ids


def _pages(rows: Sequence[Mapping[str, object]]) -> Iterator[list[Mapping[str, object]]]:
    for start in range(0, len(rows), ROWS):
        yield list(rows[start : start + ROWS])


@contextmanager
def undone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that leaves nothing behind, so that the next example finds the journal empty."""
    with engine.connect() as connection:
        transaction = connection.begin()
        try:
            yield connection
        finally:
            transaction.rollback()


def list_all(connection: sa.Connection, most_blocks: int = 1000) -> int:
    """List full blocks, as the broker does; returns how many there were."""
    listed = 0
    while listed < most_blocks and (block := read_unlisted(connection)) is not None:
        list_blocks(connection, [block])
        listed += 1
    return listed
