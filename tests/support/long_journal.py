"""Journals as long as those of years, made by the database itself: writing each envelope by a call would take hours."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from tests.support.journal import add_small_bus
from tests.support.long_log import list_all, newest_graphs, put_log
from xbus import model
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.writes.fingerprint import fingerprint
from xbus.clock import SystemClock
from xbus.ids import keyed_envelope_id
from xbus.states import DeliveryState

PAGE = 500_000
"""Envelopes of a transaction."""

TYPES = ("notes", "flights", "fares")
PARKED_SHARE, FAILURE_SHARE = 100, 10
"""One envelope of so many is parked, and one of so many has failed."""

KEY = "order 1"
"""The key of one envelope, the newest of its emitter."""

CODES = ("refused", "timed_out", "connection_lost")
GROUPS = 300
"""Troubles that failures are of, so that there are several pages of groups."""

NAMES = ("ada", "ben", "eve", "fay", "guy", "hal", "ivo", "joy", "kim", "lou")

_NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :count - 1) ",
    "postgresql": "WITH n(i) AS (SELECT generate_series(0, :count - 1)) ",
}
_ID = {"sqlite": "lower(hex(randomblob(16)))", "postgresql": "gen_random_uuid()"}
_HASTE = "PRAGMA cache_size = -2000000"
"""Keeps the indices of SQLite in memory, to which ids go in no order."""

_AT = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', :begin, '+' || ((:first + i) / 100) || ' seconds')",
    "postgresql": "CAST(:begin AS timestamptz) + (:first + i) / 100 * interval '1 second'",
}
_GRAPH = "CASE (position * 7919) % 3 WHEN 0 THEN :graph_0 WHEN 1 THEN :graph_1 ELSE :graph_2 END"
_TYPE = "CASE (position * 7919) % 3 WHEN 0 THEN :type_0 WHEN 1 THEN :type_1 ELSE :type_2 END"


def fill(url: str, envelopes: int, failure_groups: int = GROUPS) -> None:
    """Fill an empty journal with envelopes of one event, a hundred for each second, the last one just now."""
    begin = SystemClock().now() - timedelta(seconds=envelopes // 100)
    with writing(url) as connection:
        add_small_bus(connection)
    for first in range(0, envelopes, PAGE):
        with writing(url) as connection:
            _put_page(connection, first, min(PAGE, envelopes - first), begin)
    with writing(url) as connection:
        _fail(connection, envelopes, failure_groups)
    with writing(url) as connection:
        _put_keyed(connection)
        list_all(connection, envelopes)
    with writing(url) as connection:
        if connection.dialect.name == "postgresql":  # which does so by itself, in time
            connection.execute(sa.text("ANALYZE"))


def _put_page(connection: sa.Connection, first: int, count: int, begin: datetime) -> None:
    dialect, graphs = connection.dialect.name, newest_graphs(connection)
    emitter_id = connection.execute(sa.select(model.emitter.c.id).limit(1)).scalar_one()
    types = dict(connection.execute(sa.select(model.event_type.c.name, model.event_type.c.id)).all())
    chosen = {f"graph_{place}": graphs[name] for place, name in enumerate(TYPES)}
    chosen |= {f"type_{place}": types[name] for place, name in enumerate(TYPES)}
    told = begin.isoformat(sep=" ") if dialect == "postgresql" else begin.strftime("%Y-%m-%d %H:%M:%S")
    bounds = {"first": first, "count": count, "begin": told, "emitter": emitter_id}
    envelope = (
        "INSERT INTO envelope (id, emitter_id, state, opened_at, closed_at, position, events, items, bytes, hash) "
        f"{_NUMBERS[dialect]} SELECT {_ID[dialect]}, :emitter, 'received', {_AT[dialect]}, {_AT[dialect]}, "
        ":first + i + 1, 1, 0, 0, :hash FROM n"
    )
    event = (
        "INSERT INTO event (id, envelope_id, number, event_type_id, graph_id, estimate, items) "
        f"SELECT {_ID[dialect]}, id, 1, {_TYPE}, {_GRAPH}, 0, 0 FROM envelope "
        "WHERE position > :first AND position <= :first + :count"
    )
    if dialect == "sqlite":
        connection.execute(sa.text(_HASTE))
    connection.execute(sa.text(envelope), {**bounds, "hash": b"h" * 32})
    connection.execute(sa.text(event), {**bounds, **chosen})
    connection.execute(sa.update(model.head).values(position=first + count))


def _fail(connection: sa.Connection, envelopes: int, groups: int) -> None:
    now = SystemClock().now()
    role_id = connection.execute(sa.select(model.role.c.id).where(model.role.c.login == "store_1")).scalar_one()
    envelope = model.envelope.c
    for low in range(0, envelopes, PAGE):
        high = min(low + PAGE, envelopes)
        found = connection.execute(
            sa.select(envelope.position, envelope.id)
            .where(envelope.position > low, envelope.position <= high, envelope.position % FAILURE_SHARE == 0)
            .order_by(envelope.position)
        ).all()
        _insert(connection, model.failure, [_failure(at, each, role_id, now, groups) for at, each in found])
        parked = [_parked(at, each, role_id, now) for at, each in found if at % PARKED_SHARE == 0]
        _insert(connection, model.delivery, parked)


def _failure(position: int, envelope_id: uuid.UUID, role_id: int, now: datetime, groups: int) -> Mapping[str, object]:
    number = position // FAILURE_SHARE % groups
    code, message = (
        CODES[number % len(CODES)],
        f"the total is no number, says till {NAMES[number % 10] * (number // 10)}",
    )
    return {
        "at": now,
        "envelope_id": envelope_id,
        "role_id": role_id,
        "verb": "send_item",
        "code": code,
        "message": message,
        "fingerprint": fingerprint(role_id, code, message),
    }


def _parked(position: int, envelope_id: uuid.UUID, role_id: int, now: datetime) -> Mapping[str, object]:
    return {
        "role_id": role_id,
        "envelope_id": envelope_id,
        "position": position,
        "state": DeliveryState.PARKED.value,
        "attempts": 5,
        "code": CODES[0],
        "cause": "the total is no number",
        "changed_at": now,
    }


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> None:
    for low in range(0, len(rows), 10_000):
        connection.execute(sa.insert(table), rows[low : low + 10_000])


def _put_keyed(connection: sa.Connection) -> None:
    """Put an envelope at the end to which its emitter gave a key, and have one of two roles lack nothing."""
    graphs = newest_graphs(connection)
    (put,) = put_log(connection, [[graphs["notes"]]], SystemClock().now())
    envelope, event = model.envelope.c, model.event.c
    row = connection.execute(sa.select(model.envelope).where(envelope.id == put)).mappings().one()
    keyed = {"id": keyed_envelope_id(row["emitter_id"], KEY), "idempotency_key": KEY}
    connection.execute(sa.update(model.envelope).where(envelope.id == put).values(position=None))
    connection.execute(sa.insert(model.envelope), {**row, **keyed})
    connection.execute(sa.update(model.event).where(event.envelope_id == put).values(envelope_id=keyed["id"]))
    connection.execute(sa.delete(model.envelope).where(envelope.id == put))
    store = sa.select(model.role.c.id).where(model.role.c.login == "store_2").scalar_subquery()
    at_the_end = {"position": row["position"], "handed_to": row["position"]}
    connection.execute(sa.update(model.cursor).where(model.cursor.c.role_id == store).values(at_the_end))
