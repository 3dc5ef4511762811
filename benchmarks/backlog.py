"""A backlog written straight into the database, as if emitters had sent it while nobody took it.

The log's table of contents lists it, as a broker does a second after a block of envelopes is full.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from benchmarks.bus import EMITTER, EVENT_TYPE
from benchmarks.items import sample
from xbus import model
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.log.contents import list_blocks, read_unlisted
from xbus.broker.journal.log.segments import Content, content_hash
from xbus.rpc.codec import pack_items

SEGMENT_ITEMS = 5_000
"""About as many as the broker puts into one segment."""

NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < :last) ",
    "postgresql": "WITH numbers AS (SELECT generate_series(0, :last) AS n) ",
}
ID = {"sqlite": "printf('{kind}%031x', {n})", "postgresql": "('{kind}' || lpad(to_hex({n}), 31, '0'))::uuid"}


def add_backlog(
    url: str,
    envelopes: int,
    items: int,
    after: int = 0,
    texts: Sequence[bytes] = (),
    event_type: str = EVENT_TYPE,
) -> None:
    """Add received envelopes of one event each.

    Args:
        items: of each envelope.
        after: how many are there already, from an earlier call.
        texts: what the items are, again and again; those of ``sample`` where there are none.
        event_type: the type of their events.
    """
    segments = -(-items // SEGMENT_ITEMS)
    in_segment = items // segments
    assert in_segment * segments == items, "all segments are alike"
    texts = texts or sample()
    data = pack_items([texts[number % len(texts)] for number in range(in_segment)])
    digest = hashlib.sha256(data).digest()
    with writing(url) as connection:
        values = {
            **_ids(connection, event_type),
            "now": datetime.now(UTC).isoformat(sep=" ").replace("+00:00", ""),
            "items": items,
            "in_segment": in_segment,
            "segments": segments,
            "data": data,
            "digest": digest,
            "bytes": len(data) * segments,
            "hash": content_hash([Content(event_type, items, [digest] * segments)]),
            "after": after,
        }
        kind = connection.dialect.name
        for statement in (_ENVELOPES, _EVENTS):
            connection.execute(_written(statement, kind), values | {"last": envelopes - 1})
        connection.execute(_written(_SEGMENTS, kind), values | {"last": envelopes * segments - 1})
        connection.execute(sa.update(model.head).values(position=after + envelopes))
        stored = model.writer.c.stored_bytes + envelopes * segments * len(data)
        connection.execute(sa.update(model.writer).values(stored_bytes=stored))
        while block := read_unlisted(connection):
            list_blocks(connection, [block])


def _ids(connection: sa.Connection, event_type: str) -> dict[str, int]:
    def scalar(statement: sa.Select[Any]) -> int:
        return int(connection.execute(statement).scalar_one())

    type_id = scalar(sa.select(model.event_type.c.id).where(model.event_type.c.name == event_type))
    return {
        "emitter_id": scalar(sa.select(model.emitter.c.id).where(model.emitter.c.login == EMITTER)),
        "type_id": type_id,
        "graph_id": scalar(sa.select(sa.func.max(model.graph.c.id)).where(model.graph.c.event_type_id == type_id)),
    }


def _written(statement: str, kind: str) -> sa.TextClause:
    for name, number in (("envelope", "n"), ("event", "n"), ("event_of_segment", "n / :segments")):
        first = "a" if name == "envelope" else "b"
        statement = statement.replace(f"<{name}>", ID[kind].format(kind=first, n=f"({number} + :after)"))
    moment = "CAST(:now AS timestamptz)" if kind == "postgresql" else ":now"
    insert, select = statement.replace("<now>", moment).split("SELECT", 1)
    return sa.text(f"{insert}{NUMBERS[kind]}SELECT{select} FROM numbers")


_ENVELOPES = """INSERT INTO envelope
    (id, emitter_id, state, opened_at, closed_at, position, events, items, bytes, hash)
    SELECT <envelope>, :emitter_id, 'received', <now>, <now>, n + :after + 1, 1, :items, :bytes, :hash"""
_EVENTS = """INSERT INTO event (id, envelope_id, number, event_type_id, graph_id, estimate, items)
    SELECT <event>, <envelope>, 1, :type_id, :graph_id, 0, :items"""
_SEGMENTS = """INSERT INTO segment (event_id, first_index, items, data, hash)
    SELECT <event_of_segment>, n % :segments * :in_segment, :in_segment, :data, :digest"""
