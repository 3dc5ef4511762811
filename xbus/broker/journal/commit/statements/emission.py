"""Statements for emitters' writes: envelopes and events that begin and end, and the items between."""

import json
from collections.abc import Sequence
from contextlib import closing

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import exactly_one
from xbus.broker.journal.database.binary_copy import copy_in
from xbus.broker.journal.log.segments import COPY_COLUMNS, SegmentRow, copy_rows
from xbus.errors import EventIdTaken
from xbus.states import EnvelopeState

COPY_FROM_BYTES = 16 * 1024
"""A single segment below this size costs less as an INSERT: COPY takes a round trip more."""

_INSERT_SEGMENT = {
    dialect: f"INSERT INTO segment ({', '.join(COPY_COLUMNS)}) VALUES ({', '.join([mark] * len(COPY_COLUMNS))})"
    for dialect, mark in (("sqlite", "?"), ("postgresql", "%s"))
}
_INSERT_ENVELOPE = sa.insert(model.envelope)
_INSERT_EVENT = sa.insert(model.event)
_EVENT_KEY = (f'"{model.event.primary_key.name}"', "UNIQUE constraint failed: event.id")
"""What PostgreSQL and SQLite say when the id of an event is there already."""

_END_EVENT = (
    sa.update(model.event)
    .where(model.event.c.id == bindparam("event_id"), model.event.c["items"].is_(None))
    .values(items=bindparam("item_count"))
)


def start_envelopes(connection: sa.Connection, group: Sequence[writes.StartEnvelope]) -> None:
    connection.execute(
        _INSERT_ENVELOPE,
        [
            {
                "id": write.envelope_id,
                "emitter_id": write.emitter_id,
                "state": EnvelopeState.OPEN,
                "opened_at": write.at,
                "ordering_key": write.ordering_key,
                "idempotency_key": write.idempotency_key,
            }
            for write in group
        ],
    )


def start_events(connection: sa.Connection, group: Sequence[writes.StartEvent]) -> None:
    """Insert events.

    Raises:
        EventIdTaken: another envelope has an event of that id; told only of one that is alone.
    """
    rows = [
        {
            "id": write.event_id,
            "envelope_id": write.envelope_id,
            "number": write.number,
            "event_type_id": write.event_type_id,
            "graph_id": write.graph_id,
            "estimate": write.estimate,
        }
        for write in group
    ]
    try:
        connection.execute(_INSERT_EVENT, rows)
    except sa.exc.IntegrityError as error:
        if len(group) == 1 and any(name in str(error.orig) for name in _EVENT_KEY):
            raise EventIdTaken(
                f"another envelope has an event {group[0].event_id}", "give each event an id of its own"
            ) from error
        raise


def end_events(connection: sa.Connection, group: Sequence[writes.EndEvent]) -> None:
    for write in group:
        exactly_one(
            connection.execute(_END_EVENT, {"event_id": write.event_id, "item_count": write.items}),
            f"event {write.event_id} is not there to be ended",
        )


def insert_segments(connection: sa.Connection, rows: Sequence[SegmentRow]) -> None:
    """Store items: the hottest of all statements, so each driver gets what it is fastest with."""
    is_lone = len(rows) == 1 and len(rows[0].data) < COPY_FROM_BYTES
    with closing(connection.connection.cursor()) as cursor:
        if connection.dialect.name == "postgresql" and not is_lone:
            copy_in(cursor, "segment", COPY_COLUMNS, copy_rows(rows))
        else:
            cursor.executemany(_INSERT_SEGMENT[connection.dialect.name], [_driver_row(row) for row in rows])


def _driver_row(row: SegmentRow) -> tuple[str, int, int, bytes, bytes, str | None]:
    """A row as SQLAlchemy's types would write it."""
    indices = None if row.indices is None else json.dumps(row.indices)
    return (row.event_id.hex, row.first_index, row.items, row.data, row.hash, indices)
