"""Statements for emitters' writes: envelopes and events that begin and end, and the items between."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from uuid import UUID

import psycopg2
import sqlalchemy as sa

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.rows import INTEGRITY_ERRORS, Driver, insert_rows, update_rows
from xbus.broker.journal.database.binary_copy import copy_in
from xbus.broker.journal.database.engine import driver_of
from xbus.broker.journal.log.segments import COPY_COLUMNS, SegmentRow, copy_rows
from xbus.errors import EnvelopeIdTaken, EventIdTaken, JournalError
from xbus.states import EnvelopeState

COPY_FROM_BYTES = 64 * 1024
"""From so much data on PostgreSQL gets segments by COPY, which writes no byte as text. It takes a round trip more."""

INSERT_ENVELOPES = insert_rows(
    "insert_envelopes",
    model.envelope,
    [
        *("id", "emitter_id", "state", "opened_at", *[column.name for column in model.ENVELOPE_HEAD]),
        *("closed_at", "position", "events", "items", "bytes", "hash", "content_hash"),
    ],
)
_OPEN = EnvelopeState.OPEN.value
_NOT_RECEIVED = (None,) * 7
"""The values of an open envelope that it gets when it is sealed."""

INSERT_EVENTS = insert_rows(
    "insert_events",
    model.event,
    [
        *("id", "envelope_id", "number", "event_type_id", "graph_id", "estimate", "items"),
        *(*[column.name for column in model.EVENT_TAGS], "data", "data_hash", "plain_bytes"),
    ],
)
NO_SEGMENT = (None,) * 3
"""The last values of an event whose row has no segment."""

SMALL_BYTES = 2_000
"""The stored bytes up to which the only segment of an event lies in the row of the event. PostgreSQL moves more
out of a row, and in SQLite more fills the page of many rows."""

INSERT_SEGMENTS = insert_rows("insert_segments", model.segment, COPY_COLUMNS)
_END_EVENTS = update_rows("end_events", model.event, ["items"], "id", "items IS NULL")

_ENVELOPE_KEY = (model.envelope.primary_key.name, "UNIQUE constraint failed: envelope.id")
_EVENT_KEY = (model.event.primary_key.name, "UNIQUE constraint failed: event.id")
"""The words of PostgreSQL and SQLite for an id that is there already: the name of the constraint, and the message."""


def start_envelopes(connection: sa.Connection, group: Sequence[writes.StartEnvelope]) -> None:
    rows = [
        (
            *(write.envelope_id, write.emitter_id, _OPEN, write.at),
            *(*write.head, *_NOT_RECEIVED),
        )
        for write in group
    ]
    INSERT_ENVELOPES.execute(connection, rows)


def start_events(connection: sa.Connection, group: Sequence[writes.StartEvent]) -> None:
    """Insert events.

    Raises:
        EventIdTaken: another envelope has an event of that id; told only of one that is alone.
    """
    rows = [
        (
            *(write.event_id, write.envelope_id, write.number, write.event_type_id, write.graph_id, write.estimate),
            *(None, *write.tags, *NO_SEGMENT),
        )
        for write in group
    ]
    try:
        INSERT_EVENTS.execute(connection, rows)
    except INTEGRITY_ERRORS as error:
        check_ids(error, group[0].envelope_id, [group[0].event_id] if len(group) == 1 else [])
        raise


def end_events(connection: sa.Connection, group: Sequence[writes.EndEvent]) -> None:
    if _END_EVENTS.execute(connection, [(write.items, write.event_id) for write in group]) != len(group):
        ids = ", ".join(str(write.event_id) for write in group[:3])
        raise JournalError(f"event {ids} is not there to be ended")


def insert_segments(connection: sa.Connection, rows: Sequence[SegmentRow]) -> None:
    """Store items: the hottest of all statements, so each driver gets what it is fastest with."""
    driver = driver_of(connection)
    if copies(driver, rows):
        copy_segments(driver, rows)
    else:
        INSERT_SEGMENTS.execute(connection, rows)


def copies(driver: Driver, rows: Sequence[SegmentRow]) -> bool:
    """Check whether segments hold so much data that COPY pays, where the database knows that."""
    return not isinstance(driver, sqlite3.Connection) and sum([len(row.data) for row in rows]) >= COPY_FROM_BYTES


def copy_segments(driver: Driver, rows: Sequence[SegmentRow]) -> None:
    """Store large items on PostgreSQL."""
    with closing(driver.cursor()) as cursor:
        copy_in(cursor, "segment", COPY_COLUMNS, copy_rows(rows))


def check_ids(error: Exception, envelope_id: UUID, event_ids: Sequence[UUID]) -> None:
    """Let an error of a statement pass unless it says that an id of one envelope is taken.

    Args:
        error: one of ``INTEGRITY_ERRORS``.

    Raises:
        EnvelopeIdTaken: there is an envelope of its id.
        EventIdTaken: another envelope has an event of one of these ids.
    """
    said = (str(error), error.diag.constraint_name if isinstance(error, psycopg2.Error) else None)
    if any(name in said for name in _ENVELOPE_KEY):
        raise envelope_id_taken(envelope_id) from error
    if event_ids and any(name in said for name in _EVENT_KEY):
        raise event_id_taken(event_ids) from error


def envelope_id_taken(envelope_id: UUID) -> EnvelopeIdTaken:
    """Make the error of an envelope whose id is taken."""
    return EnvelopeIdTaken(f"there is an envelope {envelope_id}", "give each envelope an id of its own")


def event_id_taken(event_ids: Sequence[UUID]) -> EventIdTaken:
    """Make the error of an envelope with events whose ids are taken."""
    ids = ", ".join(map(str, event_ids))
    return EventIdTaken(f"another envelope has an event {ids}", "give each event an id of its own")
