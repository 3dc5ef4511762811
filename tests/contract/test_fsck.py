"""The examination of a journal: a good one has no faults, and of a damaged one the fault is named."""

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.bus import apply_text
from tests.support.damage import columns, damaged_copies, fill
from tests.support.fsck import examined
from tests.support.journal import NOW, Scribe, add_small_bus, looking
from xbus import model
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.fsck.faults import FaultCode
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, read_unlisted
from xbus.broker.journal.writes import DeliveryMove, DeliveryRow, ProgressUpdate, PutEnvelope, PutEvent
from xbus.rpc.codec import pack_items
from xbus.states import DeliveryState


async def test_a_good_journal_has_no_faults(shared_url: str, shared_journal: Journal, shared_scribe: Scribe) -> None:
    assert examined(shared_url) == []
    await fill(shared_url, shared_journal, shared_scribe)
    assert examined(shared_url) == []


@pytest.mark.parametrize(
    ("state", "code", "service", "is_right"),
    [
        (DeliveryState.WAITING, "output_not_ready", None, True),
        (DeliveryState.WAITING, "output_not_ready", "names", False),
        (DeliveryState.WAITING, "worker_absent", "names", True),
        (DeliveryState.WAITING, "worker_absent", None, False),
        (DeliveryState.RETRY, "timed_out", None, True),
        (DeliveryState.RETRY, "timed_out", "names", False),
    ],
)
async def test_what_waits_for_a_worker_names_its_service_and_what_waits_for_an_output_none(
    shared_url: str,
    shared_journal: Journal,
    shared_scribe: Scribe,
    state: DeliveryState,
    code: str,
    service: str | None,
    is_right: bool,
) -> None:
    receipt = await shared_scribe.put([b"x"], type_name="flights")
    of_envelope = shared_scribe.role_id(), receipt.envelope_id, receipt.position
    row = DeliveryRow(*of_envelope, state, 1, code, "the worker sleeps", service)
    await shared_journal.write(ProgressUpdate(NOW, deliveries=[DeliveryMove(None, row)]))
    assert [fault.code for fault in examined(shared_url)] == [FaultCode.PROGRESS_WRONG] * (not is_right)


UNPROTECTED = {
    "api_token": {"created_at", "id", "name", "token_hash", "used_at"},
    "archive_file": {"bytes", "first_position", "items", "last_position", "location"},
    "archive_run": {"ended_at", "lease_until", "started_at"},
    "archived_envelope": {"archived_at", "restored_at"},
    "archived_event": {"hash", "segments"},
    "audit": {"id"},
    "bot": {"attempts", "emitter_id", "max_seconds", "name"},
    "bot_run": {"attempts", "code", "due_at", "ended_at", "error", "id", "log", "role_id", "slot", "started_at"},
    "bot_state": {"failures", "slots_until"},
    "bulk_attempt": {"ended_at", "lease_until", "progress", "started_at"},
    "bulk_segment": {"first_index"},
    "configuration": {"bus", "graph_edits", "oldest_schema", "version"},
    "correction": {"after", "at", "before", "id", "item_index", "reason"},
    "cursor": {"handed_to", "position"},
    "decision": {"at", "id", "position", "reason", "role_id", "until_position"},
    "delivery": {"attempts", "cause", "changed_at", "code"},
    "emission_profile": {"encoding", "id", "name"},
    "emitter": {"login", "password_hash"},
    "emitter_profile": {"name"},
    "envelope": {"closed_at", "origin_id"},
    "event": {"estimate"},
    "event_type": {"immediate_reply", "is_topic", "max_isolated", "name"},
    "failure": {"at", "code", "event_id", "id", "message", "node", "role_id", "verb"},
    "graph": {"created_at", "number"},
    "history": {"at", "id", "move", "reason", "subject", "subject_id"},
    "input_descriptor": {"content", "mimetype", "name"},
    "lag_limit": {"envelopes", "subject_id"},
    "node": {"aside", "name"},
    "object_removal": {"hash", "removed_at", "store_id"},
    "object_store": {"id", "mark", "marked_at", "place"},
    "parked_item": {"cause", "changed_at", "code", "item_index"},
    "pause": {"paused_by", "reason", "since", "subject_id", "until"},
    "person": {"created_at", "display_name", "email", "last_seen_at", "login", "password_hash", "rights"},
    "person_session": {"created_at", "expires_at", "id", "origin", "token_hash", "used_at"},
    "person_token": {"created_at", "expires_at", "id", "name", "rights", "token_hash", "used_at"},
    "presence": {"noted_at", "role_id", "since"},
    "reader": {"batch_bytes", "batch_items", "batch_wait", "keeps", "lease", "ranges"},
    "reader_event_type": {"event_type_id"},
    "reader_range": {"attempts", "counter", "skipped"},
    "reader_stretch": {"event", "item"},
    "registration": {"registered_at", "role_id", "token_hash", "uri"},
    "reply": {"data", "until"},
    "role": {"instances", "login", "standby"},
    "sample": {
        "began_at",
        "ended_at",
        "envelopes",
        "events",
        "items",
        "lag",
        "lag_seconds",
        "observed",
        "parked",
        "position",
        "step",
    },
    "sending_limit": {"items_per_second", "subject_id"},
    "service": {"key", "name"},
    "session": {"expires_at", "role_id", "started_at", "token_hash"},
    "subscription": {"id", "name", "url", "verify"},
    "subscription_state": {"code", "error", "failed_at", "failing_since", "failures", "retry_at"},
    "writer": {"epoch", "group_number", "holder", "name"},
}
"""The columns in which a flipped bit may pass: nothing else in the journal says the same. ``docs/operating.md`` lists
them by what they are."""


READERS = """
[[reader]]
name = "billing"
event_types = ["notes"]
max_lag = 1000

[[subscription]]
name = "shop"
event_types = ["notes"]
url = "https://shop.example/events"

[[service]]
name = "runners"
kind = "runner"

[[bot]]
name = "report"
command = ["report"]
cron = "0 3 * * *"
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a good journal that nobody has open."""
    path = tmp_path_factory.mktemp("good") / "xbus.db"
    url = f"sqlite:///{path}"
    schema.upgrade(url)
    with looking(url) as connection:
        add_small_bus(connection)
    apply_text(url, READERS)

    async def write() -> None:
        async with Journal(create_engine(url), "broker") as journal:
            await fill(url, journal, await Scribe.of(journal))

    asyncio.run(write())
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.mark.parametrize("table", sorted({table for table, _ in columns()}))
def test_flipped_bits_are_found(good: Path, table: str, tmp_path: Path) -> None:
    missed = {
        (column, change)
        for name, column in columns()
        if name == table and column not in UNPROTECTED.get(table, ())
        for change, copy in damaged_copies(good, table, column, tmp_path)
        if not examined(copy)
    }
    assert missed == set()


@pytest.mark.parametrize(("table", "row_id"), [("segment", "event_id"), ("event", "id")])
def test_a_fault_names_the_event_and_the_index(good: Path, tmp_path: Path, table: str, row_id: str) -> None:
    for _, copy in damaged_copies(good, table, "data", tmp_path):
        faults = [fault for fault in examined(copy) if fault.code is FaultCode.SEGMENT_CHANGED]
        with closing(sqlite3.connect(good)) as database:
            ((event_id,),) = database.execute(
                f"SELECT {row_id} FROM {table} WHERE data IS NOT NULL ORDER BY rowid LIMIT 1"
            ).fetchall()
        assert {(fault.table, fault.row) for fault in faults} == {("log_segment", f"{uuid.UUID(event_id)}, 0")}


@pytest.mark.parametrize(
    "table", ["configuration", "cursor", "delivery", "envelope", "event", "head", "node", "segment"]
)
def test_a_page_of_the_file_that_was_overwritten_is_found(good: Path, tmp_path: Path, table: str) -> None:
    with closing(sqlite3.connect(good)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    copy = tmp_path / "copy.db"
    damaged = bytearray(good.read_bytes())
    damaged[page * 4096 + 8 : page * 4096 + 64] = b"\xff" * 56
    copy.write_bytes(damaged)
    assert examined(f"sqlite:///{copy}")


DAMAGE = (
    ("segment", "data = substr(data, 1, length(data) - 1) || '\\x07'::bytea", FaultCode.SEGMENT_CHANGED),
    ("segment", "items = items + 1", FaultCode.SEGMENT_CHANGED),
    ("segment", "first_index = first_index + 8", FaultCode.SEGMENT_CHANGED),
    ("segment", "event_id = '00000000-0000-4000-8000-000000000001'", FaultCode.REFERENCE_BROKEN),
    ("event", "items = 9", FaultCode.EVENT_CHANGED),
    ("event", "partition_key = 'client 8'", FaultCode.ENVELOPE_CHANGED),
    ("envelope", "hash = sha256(hash)", FaultCode.ENVELOPE_CHANGED),
    ("envelope", "bytes = bytes + 1", FaultCode.ENVELOPE_CHANGED),
    ("envelope", "position = 900", FaultCode.LOG_BROKEN),
    ("head", "position = 900", FaultCode.LOG_BROKEN),
    ("cursor", "position = 900", FaultCode.PROGRESS_WRONG),
    ("delivery", "position = 2", FaultCode.PROGRESS_WRONG),
    ("bulk_segment", "hash = sha256(hash)", FaultCode.OUTPUT_CHANGED),
    ("audit", "reason = 'nothing'", FaultCode.AUDIT_CHANGED),
    ("node", "graph_id = 999", FaultCode.REFERENCE_BROKEN),
    ("writer", "stored_bytes = stored_bytes + 4", FaultCode.BYTES_MISCOUNTED),
)


async def test_damage_in_postgresql_is_found(store_url: str) -> None:
    async with Journal(create_engine(store_url), "broker") as journal:
        await fill(store_url, journal, await Scribe.of(journal))
    assert examined(store_url) == []
    for table, change, code in DAMAGE:
        with damaging(store_url) as connection:
            connection.exec_driver_sql(f"CREATE TABLE kept AS TABLE {table}")
            connection.exec_driver_sql(f"UPDATE {table} SET {change} WHERE ctid = (SELECT min(ctid) FROM {table})")
        found = {fault.code for fault in examined(store_url)}
        with damaging(store_url) as connection:
            connection.exec_driver_sql(f"DELETE FROM {table}")
            connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM kept ORDER BY ctid")
            connection.exec_driver_sql("DROP TABLE kept")
        assert code in found, (table, change)
    assert examined(store_url) == []


@contextmanager
def damaging(url: str) -> Iterator[sa.Connection]:
    """A connection past constraints and triggers, as damage to the files would be."""
    with looking(url) as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield connection


async def test_a_table_of_contents_that_is_wrong_is_found(
    shared_url: str, shared_journal: Journal, shared_scribe: Scribe
) -> None:
    notes = shared_scribe.catalog.event_types["notes"]

    def put() -> PutEnvelope:
        event = PutEvent(uuid.uuid4(), notes.id, "notes", notes.graph_id, 1, pack_items([b"a"]))
        return PutEnvelope(uuid.uuid4(), shared_scribe.emitter_id(), [event], NOW)

    await asyncio.gather(*(shared_journal.write(put()) for _ in range(BLOCK_POSITIONS)))
    listed = await shared_journal.read(read_unlisted)
    assert listed is not None
    await shared_journal.write(listed)
    assert examined(shared_url) == []
    (graph,) = listed.graphs
    for values in (
        {"positions": graph.positions[:-1]},
        {"events": BLOCK_POSITIONS - 1},
        {"items": BLOCK_POSITIONS + 1},
        {"block": 7},
    ):
        with writing(shared_url) as connection:
            connection.execute(sa.update(model.contents).values(**values))
        assert {fault.code for fault in examined(shared_url)} == {FaultCode.LOG_BROKEN}
        with writing(shared_url) as connection:
            connection.execute(sa.update(model.contents).values(**asdict(graph)))
    assert examined(shared_url) == []
