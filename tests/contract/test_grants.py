"""Database roles that ``xbus database grant`` limits: their programs work, and see nothing else."""

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import sqlalchemy as sa

from tests.support.attempts import begin, end, event_of, write_part
from tests.support.daemon import write_config
from tests.support.journal import NOW, Scribe
from tests.support.operating import run_command
from xbus import model
from xbus.broker.journal.archive.reading import archived_files, count_archived
from xbus.broker.journal.bulk.part_writer import open_part
from xbus.broker.journal.bulk.segment_reader import open_reader
from xbus.broker.journal.configuration import set_password
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.grants import GrantPurpose, grant
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log import planning
from xbus.broker.journal.log.planning import cut_event, cut_output
from xbus.broker.journal.log.reading import read_head
from xbus.errors import JournalError, Refused
from xbus.rpc.codec import unpack_items

PASSWORD = "only for a test"

READABLE = {
    GrantPurpose.LOG_READER: {
        *("alembic_version", "head", "log_event", "log_segment", "object_store"),
        *("archive_file", "archived_envelope", "archived_event"),
    },
    GrantPurpose.BULK_WORKER: {
        *("alembic_version", "log_segment", "object_store"),
        *("bulk_attempt", "bulk_segment"),
    },
}
"""The tables and views of which a role may read all columns."""

SOME_COLUMNS = {
    GrantPurpose.LOG_READER: {
        *(("event_type", "id"), ("event_type", "name")),
        *(("envelope", name) for name in ("id", "position", "closed_at", "pruned_at")),
    },
    GrantPurpose.BULK_WORKER: {("event", "id"), ("event", "origin_id"), ("event", "items")},
}


class Guest:
    """A database role of its own, and the address by which it comes."""

    def __init__(self, url: str) -> None:
        # A name with letters that mean something elsewhere.
        self.name = f'gu"est %s :x {secrets.token_hex(4)}'
        self.owner_url = url
        parts = urlsplit(url)
        login = f"{quote(self.name, safe='')}:{quote(PASSWORD)}"
        self.url = urlunsplit(parts._replace(netloc=f"{login}@{parts.hostname}:{parts.port}"))

    @property
    def quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'

    def may(self, purpose: GrantPurpose) -> "Guest":
        with writing(self.owner_url) as connection:
            grant(connection, self.name, purpose)
        return self

    def is_let(self, statement: str) -> bool:
        try:
            with writing(self.url) as connection, closing(connection.connection.cursor()) as cursor:
                cursor.execute(statement)
        except JournalError as error:
            assert "permission denied" in str(error), statement
            return False
        return True


def execute(url: str, statement: str) -> None:
    with writing(url) as connection, closing(connection.connection.cursor()) as cursor:
        cursor.execute(statement)


@pytest.fixture
def guest(store_url: str) -> Iterator[Guest]:
    guest = Guest(store_url)
    execute(store_url, f"CREATE ROLE {guest.quoted} LOGIN PASSWORD '{PASSWORD}'")
    yield guest
    execute(store_url, f"DROP OWNED BY {guest.quoted}")
    execute(store_url, f"DROP ROLE {guest.quoted}")


@pytest.fixture
async def log(store_url: str) -> AsyncIterator[tuple[Journal, Scribe]]:
    with writing(store_url) as connection:
        set_password(connection, "emitter", "north", "$argon2id$a hash", NOW)
    async with Journal.open(store_url, "broker") as journal:
        scribe = await Scribe.of(journal)
        for number in range(3):
            await scribe.put([b"%d" % number, b"x"], type_name="flights")
        yield journal, scribe


def test_a_new_role_may_nothing(guest: Guest) -> None:
    assert not any(guest.is_let(f'SELECT count(*) FROM "{table}"') for table in tables())


def tables() -> list[str]:
    return ["alembic_version", *sorted(model.metadata.tables)]


@pytest.mark.parametrize("purpose", GrantPurpose)
def test_a_role_reads_what_its_work_needs_and_nothing_else(guest: Guest, purpose: GrantPurpose) -> None:
    guest.may(purpose)
    all_of_it = {name for name in (*tables(), *model.views.tables) if guest.is_let(f'SELECT * FROM "{name}"')}
    assert all_of_it == READABLE[purpose]
    columns = {
        (table.name, column.name)
        for table in model.metadata.sorted_tables
        if table.name not in READABLE[purpose]
        for column in table.columns
        if guest.is_let(f'SELECT "{column.name}" FROM "{table.name}"')
    }
    assert columns == SOME_COLUMNS[purpose]


@pytest.mark.parametrize("purpose", GrantPurpose)
def test_a_role_writes_outputs_at_the_most(guest: Guest, purpose: GrantPurpose) -> None:
    guest.may(purpose)
    is_worker = purpose is GrantPurpose.BULK_WORKER
    written = {table for table in tables() if guest.is_let(f'DELETE FROM "{table}"')}
    assert written == ({"bulk_segment"} if is_worker else set())
    assert not any(guest.is_let(f'TRUNCATE "{table}"') for table in tables())
    changed = {
        (table.name, column.name)
        for table in model.metadata.sorted_tables
        for column in table.columns
        if guest.is_let(f'UPDATE "{table.name}" SET "{column.name}" = NULL WHERE false')
    }
    assert changed == ({("bulk_attempt", "started_at")} if is_worker else set())


@pytest.mark.usefixtures("log")
async def test_a_reader_of_the_log_gets_all_rows_of_it(guest: Guest) -> None:
    guest.may(GrantPurpose.LOG_READER)
    with reading(guest.url) as connection:
        schema.check_connection(connection)
        type_id = planning.read_type_id(connection, "flights")
        assert type_id is not None
        head = read_head(connection)
        assert (head, planning.count_items(connection, type_id, 0, head)) == (3, 6)
        assert planning.read_end(connection, type_id, 0, head, 2) == 1
        assert planning.position_before(connection, NOW) <= head
        assert (planning.count_missing(connection, 0, head), count_archived(connection, 0, head)) == (0, 0)
        assert archived_files(connection, type_id, 0, head) == []
        ranges = planning.cut_log(connection, type_id, 0, head, 2)
        assert planning.read_first(connection) == 1
    with open_reader(guest.url) as reader:
        found = [segment for each in ranges for segment in reader.log_range(each, ("data", "headers"))]
    assert [item for segment in found for item in unpack_items(segment.data, segment.items)] == [
        *(b"0", b"x", b"1", b"x", b"2", b"x")
    ]
    assert {segment.emitter for segment in found} == {"north"}


async def test_a_bulk_worker_reads_events_and_writes_outputs(guest: Guest, log: tuple[Journal, Scribe]) -> None:
    journal, scribe = log
    guest.may(GrantPurpose.BULK_WORKER)
    event_id = await event_of(journal, await scribe.put([b"a", b"b", b"c"], type_name="flights"))
    with reading(guest.url) as connection:
        schema.check_connection(connection)
        ranges = cut_event(connection, event_id, 2)
    with open_reader(guest.url) as reader:
        items = [
            item
            for each in ranges
            for segment in reader.segments(each)
            for item in unpack_items(segment.data, segment.items)
        ]
    assert items == [b"a", b"b", b"c"]

    attempt_id = await begin(journal, scribe, event_id)
    assert attempt_id is not None
    # The second one replaces the first.
    for _ in range(2):
        await asyncio.to_thread(write_part, guest.url, attempt_id, 0, [[b"A", b"B"]])
    assert await end(journal, attempt_id)
    with reading(guest.url) as connection:
        (found,) = cut_output(connection, attempt_id, 1)
    with open_reader(guest.url) as reader:
        assert [segment.items for segment in reader.segments(found)] == [2]
    with pytest.raises(JournalError, match="not building"), open_part(guest.url, uuid.uuid4(), 0):
        pass


def test_another_work_takes_the_rights_of_the_former(guest: Guest) -> None:
    guest.may(GrantPurpose.LOG_READER)
    guest.may(GrantPurpose.BULK_WORKER)
    assert not guest.is_let("SELECT login FROM emitter")
    assert not guest.is_let("SELECT * FROM envelope")


def test_who_is_limited_by_nothing_is_refused(store_url: str, guest: Guest) -> None:
    with pytest.raises(Refused, match="superuser"):
        Guest.may(named(guest, sa.make_url(store_url).username or ""), GrantPurpose.LOG_READER)
    with pytest.raises(Refused, match="there is no database role"):
        Guest.may(named(guest, "nobody at all"), GrantPurpose.LOG_READER)


def named(guest: Guest, name: str) -> Guest:
    other = Guest(guest.owner_url)
    other.name = name
    return other


def test_the_command_shows_the_sql_and_executes_it(guest: Guest, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", guest.owner_url)
    command = ("database", "grant", guest.name, "--for", "bulk-worker", "-c", config)
    printed = run_command(*command, "--print")
    assert f"TO {guest.quoted};" in printed.stdout
    assert not guest.is_let("SELECT * FROM log_segment")
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert guest.is_let("SELECT * FROM log_segment")
    assert '"granted"' in run_command("audit", "list", "-c", config, "-o", "json").stdout


def test_sqlite_has_no_roles(sqlite_url: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url)
    refused = run_command("database", "grant", "guest", "--for", "log-reader", "-c", config)
    assert (refused.returncode, "SQLite knows no roles" in refused.stderr) == (1, True)
