"""Executors and databases that die while outputs are written and segments read: nothing half counts, and the next try
goes well."""

import asyncio
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.attempts import adopt, end, items_of, write_part
from tests.support.journal import looking
from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.housekeeping.outputs import OutputCleaner
from xbus.broker.journal.bulk import part_writer as bulk_writing
from xbus.broker.journal.bulk.part_writer import open_part
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.bulk.side_files import folder_of
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.planning import cut_event
from xbus.clock import SystemClock
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.codec import pack_items
from xbus.states import AttemptState

DYING_EXECUTOR = """
import sys, time, uuid
from xbus.broker.journal.bulk.part_writer import open_part
with open_part(sys.argv[1], uuid.UUID(sys.argv[2]), 0) as writer:
    for _ in range(20):
        writer.write(1, b"\\xc4\\x01x", 0, None)
    writer.close()
    print("written", flush=True)
    time.sleep(60)
"""

ONLY_POSTGRESQL = pytest.mark.parametrize("shared_url", ["postgresql"], indirect=True)


def cut_connections(url: str) -> None:
    """End all connections to a PostgreSQL database but the one that does it."""
    with looking(url) as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_an_executor_that_is_killed_leaves_nothing_that_counts(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    command = [sys.executable, "-c", DYING_EXECUTOR, shared_url, str(attempt_id)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as executor:
        assert executor.stdout is not None
        assert await asyncio.to_thread(executor.stdout.readline) == b"written\n"
        executor.send_signal(signal.SIGKILL)
    await asyncio.to_thread(write_part, shared_url, attempt_id, 0, [[b"again"]])
    await adopt(shared_journal, attempt_id)
    assert await items_of(shared_journal, attempt_id) == [b"again"]
    assert await end(shared_journal, attempt_id)
    await OutputCleaner(shared_journal, SystemClock()).clean()
    folder = folder_of(sa.make_url(shared_url))
    assert folder is None or list(folder.iterdir()) == []


@ONLY_POSTGRESQL
async def test_a_connection_that_is_cut_while_a_part_is_written(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID
) -> None:
    with pytest.raises(JournalUnavailable):
        with open_part(shared_url, attempt_id, 0, copy_bytes=1) as writer:
            writer.write(1, pack_items([b"torn"]), 0, None)
            cut_connections(shared_url)
            writer.write(1, pack_items([b"torn"]), 1, None)
    with pytest.raises(JournalUnavailable):
        with open_part(shared_url, attempt_id, 0) as writer:
            writer.write(1, pack_items([b"torn"]), 0, None)
            # There is nothing left to write but the end.
            cut_connections(shared_url)
    write_part(shared_url, attempt_id, 0, [[b"again"]])
    assert await items_of_anew(shared_journal, attempt_id) == [b"again"]


@ONLY_POSTGRESQL
async def test_an_executor_that_stops_before_its_commit_does_not_hold_up_the_broker_for_long(
    shared_url: str, shared_journal: Journal, attempt_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = bulk_writing._lock_building
    ended = []

    def stop_behind_it(connection: sa.Connection, of_attempt: uuid.UUID, commit_seconds: int) -> None:
        lock(connection, of_attempt, commit_seconds)
        giving_up = end(shared_journal, attempt_id, AttemptState.ABANDONED)
        ended.append(asyncio.run_coroutine_threadsafe(giving_up, loop).result(DEADLINE_SECONDS))

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(bulk_writing, "_lock_building", stop_behind_it)
    with pytest.raises(JournalUnavailable):
        # Far longer than from one statement to the next on a busy machine.
        await asyncio.to_thread(write_part, shared_url, attempt_id, 0, [[b"late"]], commit_seconds=2)
    assert ended == [True]
    assert await items_of(shared_journal, attempt_id) == []


async def items_of_anew(journal: Journal, attempt_id: uuid.UUID) -> list[bytes]:
    """As items_of, by connections some of which may just have been cut."""
    for _ in range(5):
        try:
            return await items_of(journal, attempt_id)
        except JournalUnavailable:
            continue
    return await items_of(journal, attempt_id)


@ONLY_POSTGRESQL
async def test_a_connection_that_is_cut_while_segments_are_read(
    shared_url: str, shared_journal: Journal, event_id: uuid.UUID
) -> None:
    (wanted,) = await shared_journal.read(cut_event, event_id, 1)
    with open_reader(shared_url) as reader:
        assert len(list(reader.segments(wanted))) == 1
        cut_connections(shared_url)
        with pytest.raises(JournalUnavailable):
            list(reader.segments(wanted))
    with open_reader(shared_url) as reader:
        assert len(list(reader.segments(wanted))) == 1


def test_nothing_is_written_beside_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no database"):
        with open_part(f"sqlite:///{tmp_path}/none/xbus.db", uuid.uuid4(), 0):
            pass
