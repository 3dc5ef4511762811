"""Damages a copy of a journal, value by value, and a journal that has something in its tables to be damaged."""

import asyncio
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.attempts import event_of, make_output
from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.audit import hang_all
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import Cancel, PutEnvelope, PutEvent
from xbus.envelope import EnvelopeHead
from xbus.headers import EventTags, pack_headers
from xbus.ids import keyed_envelope_id, numbered_event_id
from xbus.rpc.codec import pack_items

HEADERS = pack_headers({"colour": "red"})


async def fill(url: str, journal: Journal, scribe: Scribe) -> None:
    """Put something of everything into a journal with the small bus."""
    parked = await scribe.put([b"a", b"b"], [b"c"], ordering_key="client 7", headers=HEADERS)
    await scribe.put([b"d"], tags=[EventTags(HEADERS, "client 7")])
    await journal.write(await scribe.again(parked.envelope_id))
    await _put_keyed(journal, scribe)
    await _put_in_segments(scribe)
    cancelled, started = scribe.start_envelope()
    await started
    await journal.write(Cancel(cancelled, NOW, "changed its mind"))
    opened, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(opened)
    await scribe.append(opened, event_id, 0, [b"x"])
    flown = await event_of(journal, await scribe.put([b"x", b"y"], type_name="flights"))
    await make_output(journal, scribe, url, flown, [[b"made", b"of"], [b"y"]])
    await asyncio.to_thread(_add_rows, url, parked.envelope_id, scribe.role_id())


async def _put_keyed(journal: Journal, scribe: Scribe) -> None:
    envelope_id = keyed_envelope_id(scribe.emitter_id(), "order 1")
    notes = scribe.catalog.event_types["notes"]
    put = PutEvent(numbered_event_id(envelope_id, 1), notes.id, "notes", notes.graph_id, 2, pack_items([b"k", b"l"]))
    await journal.write(PutEnvelope(envelope_id, scribe.emitter_id(), [put], NOW, EnvelopeHead(None, "order 1")))


async def _put_in_segments(scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    for index in range(3):
        await scribe.append(envelope_id, event_id, index, [b"%d" % index])
    await scribe.end_event(envelope_id, event_id, 3)
    await scribe.seal(envelope_id, 1, 3)


def _add_rows(url: str, envelope_id: uuid.UUID, role_id: int) -> None:
    """Add rows about the first envelope, as the back and operators leave them."""
    with writing(url) as connection:
        event = sa.select(model.event.c.id).where(model.event.c.envelope_id == envelope_id, model.event.c.number == 1)
        event_id = connection.execute(event).scalar_one()
        about = {"role_id": role_id, "envelope_id": envelope_id}
        told = {"code": "refused", "cause": "no name", "changed_at": NOW}
        rows: list[tuple[sa.Table, dict[str, Any]]] = [
            (
                model.delivery,
                {**about, **told, "position": 1, "state": "parked", "attempts": 5, "ordering_key": "client 7"},
            ),
            (model.parked_item, {**about, **told, "event_id": event_id, "item_index": 1, "state": "parked"}),
            (
                model.correction,
                {"event_id": event_id, "item_index": 0, "before": b"a", "after": b"b", "at": NOW, "reason": "ada"},
            ),
            (
                model.failure,
                {**about, "event_id": event_id, "at": NOW, "node": "store", "verb": "send_item", "code": "refused"}
                | {"message": "no name", "indices": [1]},
            ),
            (
                model.reply,
                {"event_id": event_id, "envelope_id": envelope_id, "state": "given", "until": NOW, "data": b"\x01"},
            ),
            (model.envelope_role, about),
            (model.session, {"token_hash": b"t" * 32, "role_id": role_id, "expires_at": NOW, "started_at": NOW}),
            (
                model.registration,
                {"role_id": role_id, "token_hash": b"t" * 32, "uri": "tcp://a:1", "registered_at": NOW},
            ),
            (model.presence, {"role_id": role_id, "state": "present", "since": NOW, "noted_at": NOW, "work": []}),
        ]
        for table, row in rows:
            connection.execute(sa.insert(table).values(**row))
        _add_rarely_written(connection, envelope_id, event_id, role_id)
        hang_all(connection)


def _add_rarely_written(connection: sa.Connection, envelope_id: uuid.UUID, event_id: uuid.UUID, role_id: int) -> None:
    """Add rows of the tables that no envelope of :func:`fill` needs."""

    def first(column: "sa.Column[Any]") -> int:
        return connection.execute(sa.select(sa.func.min(column))).scalar_one() or 1

    service_id, type_id = first(model.service.c.id), first(model.event_type.c.id)
    token, later, run_id, file_id = b"t" * 32, NOW + timedelta(days=9), uuid.uuid4(), uuid.uuid4()
    bot_id = connection.execute(sa.select(sa.func.min(model.bot.c.id))).scalar_one()
    limits = {"kind": "emitter", "subject_id": 1}
    rows: list[tuple[sa.Table, dict[str, Any]]] = [
        (
            model.person,
            {"login": "ada", "password_hash": "x", "display_name": "Ada", "email": "a@x", "rights": "viewer"}
            | {"created_at": NOW, "last_seen_at": NOW},
        ),
        (
            model.person_session,
            {"person_id": 1, "token_hash": token, "origin": "a", "created_at": NOW, "used_at": NOW}
            | {"expires_at": later},
        ),
        (
            model.person_token,
            {"person_id": 1, "name": "cron", "token_hash": token, "rights": "viewer", "created_at": NOW}
            | {"used_at": NOW, "expires_at": later},
        ),
        (
            model.api_token,
            {"name": "till", "token_hash": token, "emitter_id": 1, "created_at": NOW, "used_at": NOW},
        ),
        (model.input_descriptor, {"name": "csv", "content": b"<x/>", "mimetype": "text/csv"}),
        (model.emission_profile, {"name": "files", "person_id": 1, "descriptor_id": 1, "encoding": "utf-8"}),
        (model.object_store, {"place": "/objects", "mark": uuid.uuid4(), "marked_at": NOW}),
        (model.object_removal, {"store_id": 1, "hash": token, "removed_at": NOW}),
        (
            model.decision,
            {"move": "dropped", "at": NOW, "reason": "ada", "role_id": role_id, "position": 1, "until_position": 1},
        ),
        (model.archive_run, {"id": run_id, "started_at": NOW, "lease_until": NOW, "ended_at": NOW}),
        (
            model.archive_file,
            {"id": file_id, "run_id": run_id, "event_type_id": type_id, "location": "/a", "state": "kept"}
            | {"first_position": 1, "last_position": 1, "items": 2, "bytes": 9},
        ),
        (model.archived_envelope, {"envelope_id": envelope_id, "archived_at": NOW, "restored_at": NOW}),
        (model.archived_event, {"event_id": event_id, "file_id": file_id, "segments": 1, "hash": token}),
        (
            model.bot_run,
            {"bot_id": bot_id, "slot": NOW, "state": "failed", "due_at": NOW, "attempts": 2, "role_id": role_id}
            | {"started_at": NOW, "ended_at": NOW, "code": "failed", "error": "no", "log": "no"},
        ),
        (
            model.subscription_state,
            {"service_id": service_id, "failures": 2, "failing_since": NOW, "failed_at": NOW, "retry_at": NOW}
            | {"code": "no", "error": "no"},
        ),
        (model.pause, {**limits, "reason": "ada", "paused_by": "ada", "since": NOW, "until": later}),
        (model.sending_limit, {**limits, "items_per_second": 5}),
        (
            model.sample,
            {"step": 10, "began_at": NOW, "ended_at": later, "observed": 5.0, "position": 1, "envelopes": 1}
            | {"events": 1, "items": 1, "lag": 1, "lag_seconds": 1.0, "parked": 1, "parts": {}},
        ),
    ]
    for table, row in rows:
        if table is not model.bot_run or bot_id is not None:
            connection.execute(sa.insert(table).values(**row))


def columns() -> Iterator[tuple[str, str]]:
    """Each table with each of its columns."""
    for table in model.metadata.sorted_tables:
        yield from ((table.name, column.name) for column in table.columns)


def damaged_copies(path: Path, table: str, column: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Copies of an SQLite journal in each of which one bit of one value of a column is another.

    Yields:
        The value, and the copy's address. The value of the first row is damaged.
    """
    with closing(sqlite3.connect(path)) as database:
        # The oldest row: others refer to it, and to those of envelopes without events nothing does.
        found = f'SELECT rowid, "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL ORDER BY rowid LIMIT 1'
        values = database.execute(found).fetchall()
    for rowid, value in values:
        for wrong in _flipped(value):
            copy = folder / "copy.db"
            shutil.copyfile(path, copy)
            with closing(sqlite3.connect(copy, isolation_level=None)) as database:
                # As damage to the file would do it: past all that guards a statement.
                database.execute("PRAGMA foreign_keys = OFF")
                database.execute("PRAGMA ignore_check_constraints = ON")
                for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                    database.execute(f'DROP TRIGGER "{trigger}"')
                try:
                    database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (wrong, rowid))
                except sqlite3.IntegrityError:
                    continue  # two rows with one key: the database finds that by itself
            yield f"{value!r:.40} to {wrong!r:.40}", f"sqlite:///{copy}"


def _flipped(value: Any) -> Iterator[Any]:
    if isinstance(value, bytes) and value:
        place = len(value) // 2
        yield value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
    elif isinstance(value, str) and value:
        # The last one: of a moment, a number or an id it leaves one that can be read.
        yield value[:-1] + chr(ord(value[-1]) ^ 1)
    elif isinstance(value, int):
        yield value ^ 1
    elif isinstance(value, float):
        yield value + 1.0
