"""Sessions of PostgreSQL: one that is of no more use is ended, and the next one leads to the server that writes."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import sqlalchemy as sa

from tests.support import postgres
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from xbus.admin.commands.doctor import look_at_database
from xbus.broker.journal.database import schema
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.database.postgres_session import ENDING_CODES
from xbus.broker.journal.database.promises import check_durable, check_promises, has_asynchronous_standby
from xbus.broker.journal.database.raw_reader import Query, fetching
from xbus.broker.journal.journal import Journal
from xbus.clock import SystemClock
from xbus.errors import ConfigurationError, JournalUnavailable

CHANGE = sa.text("UPDATE head SET position = position")
TURN_READ_ONLY = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"


def change(connection: sa.Connection) -> int:
    connection.execute(CHANGE)
    return process(connection)


def process(connection: sa.Connection) -> int:
    """The server's process of a session."""
    found: int = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return found


async def test_a_session_that_turned_read_only_is_left(store_url: str) -> None:
    async with Journal(create_engine(store_url), "broker") as journal:
        before = await journal.run(change)
        await journal.run(lambda connection: connection.exec_driver_sql(TURN_READ_ONLY))
        with pytest.raises(JournalUnavailable, match="only reads"):
            await journal.run(change)
        assert await journal.run(change) != before


@pytest.mark.parametrize("code", sorted(ENDING_CODES))
def test_an_error_that_ends_a_session_opens_another_one(store_url: str, code: str) -> None:
    engine = create_engine(store_url)
    fault = f"DO $$ BEGIN RAISE EXCEPTION 'of no more use' USING ERRCODE = '{code}'; END $$"
    with closing(engine.raw_connection()) as raw:
        before = raw.driver_connection.info.backend_pid  # type: ignore[union-attr]
        with pytest.raises(psycopg2.Error), raw.cursor() as cursor:  # type: ignore[attr-defined]
            cursor.execute(fault)
    with engine.connect() as connection:
        assert process(connection) != before
    engine.dispose()
    with pytest.raises(JournalUnavailable, match="of no more use"), writing(store_url) as connection:
        connection.exec_driver_sql(fault)


TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")


def test_timeouts_of_the_database_end_no_work_of_the_bus(store_url: str) -> None:
    with writing(store_url) as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        for timeout in TIMEOUTS:
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET {timeout} = 300')
    with writing(store_url) as connection:
        connection.exec_driver_sql("SELECT pg_sleep(0.4)")
        assert [connection.exec_driver_sql(f"SHOW {each}").scalar_one() for each in TIMEOUTS] == ["0"] * 4


def test_a_commit_that_waits_for_no_standby_is_refused_and_none_of_ours_is(store_url: str) -> None:
    with writing(store_url) as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET synchronous_commit = local')
    with reading(store_url) as connection:
        with pytest.raises(ConfigurationError, match="synchronous_commit = local"):
            check_durable(connection)
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"


def test_a_database_that_lacks_letters_is_refused(postgres_server: postgres.Server) -> None:
    url = postgres_server.create_empty("LATIN1")
    try:
        with pytest.raises(ConfigurationError, match="in LATIN1") as refusal:
            check_promises(url)
    finally:
        postgres_server.drop(url)
    assert refusal.value.code == "database_encoding"


def test_sessions_write_all_letters_whatever_a_role_has_chosen(store_url: str) -> None:
    with writing(store_url) as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET client_encoding = 'LATIN1'")
    with reading(store_url) as connection:
        assert connection.exec_driver_sql("SELECT %s", ("請求書",)).scalar_one() == "請求書"


# -- fail-over -----------------------------------------------------------------------------------------------------


class Pair:
    """Two servers, the second one a standby of the first."""

    def __init__(self, first: postgres.Cluster, second: postgres.Cluster) -> None:
        self.first, self.second = first, second

    def url(self) -> str:
        """Of the bus's database, with both servers."""
        start, _, _ = self.first.url.partition("127.0.0.1")
        return f"{start}127.0.0.1:{self.first.port},127.0.0.1:{self.second.port}/postgres"


@pytest.fixture
def pair() -> Iterator[Pair]:
    try:
        with postgres.pair() as both:
            yield Pair(*both)
    except postgres.NotFound as error:
        pytest.skip(str(error))


def test_a_standby_that_no_commit_waits_for_is_found(pair: Pair) -> None:
    url = pair.first.url
    schema.upgrade(url)

    def told() -> dict[str, bool]:
        """What the doctor says of the database, and whether it is a problem."""
        return {finding.code: finding.is_problem for finding in look_at_database(url, SystemClock())}

    with reading(url) as connection:
        assert has_asynchronous_standby(connection)
    assert told()["standby_not_synchronous"] is False
    pair.first.set("synchronous_standby_names", "*")

    def is_safe() -> bool:
        with reading(url) as connection:
            return not has_asynchronous_standby(connection)

    wait_until(is_safe, "the server waits for its standby")
    assert "standby_not_synchronous" not in told()


async def test_a_journal_of_two_servers_follows_the_one_that_leads(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    url = pair.url()
    schema.upgrade(url)
    async with Journal(create_engine(url), "broker") as journal:
        assert "standby_not_synchronous" in [getattr(each, "action", "") for each in caplog.records]
        await journal.run(change)
        await journal.read(process)
        pair.first.stop()
        pair.second.promote()
        pair.first.become_standby()
        pair.first.start()
        # The first server runs at its address, and reads; each session may fail once.
        for _ in range(3):
            try:
                await journal.run(change)
                await journal.read(process)
            except JournalUnavailable:
                continue
        assert await journal.run(port) == pair.second.port
        assert await journal.read(port) == pair.second.port
    with pytest.raises(JournalUnavailable, match="only reads"), reading(pair.first.url):
        pass
    with pytest.raises(JournalUnavailable, match="only reads"):
        check_promises(pair.first.url)


PORT: Query[tuple[int]] = Query("SELECT current_setting('port')::int", "i")


def test_executors_of_spark_read_the_server_that_writes_and_no_standby(pair: Pair) -> None:
    start, _, _ = pair.first.url.partition("127.0.0.1")
    standby_first = f"{start}127.0.0.1:{pair.second.port},127.0.0.1:{pair.first.port}/postgres"
    with fetching(standby_first) as fetcher:
        assert fetcher.fetch(PORT) == [(pair.first.port,)]
    with pytest.raises(JournalUnavailable, match="only reads"), fetching(pair.second.url):
        pass


def port(connection: sa.Connection) -> int:
    """Where the server listens that a session leads to."""
    return int(connection.exec_driver_sql("SHOW port").scalar_one())


# -- poolers -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["session", "transaction"])
def pooled(request: pytest.FixtureRequest, store_url: str) -> Iterator[tuple[str, str]]:
    """The mode of a PgBouncer, and the address of a database behind it."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("no PgBouncer to test with")
    url = sa.make_url(store_url)
    listen = free_port()
    folder = Path(tempfile.mkdtemp(prefix="xbus-pgbouncer-", dir="/tmp"))  # root's own are closed to the account
    (folder / "users").write_text(f'"{url.username}" "{url.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{url.database} = host={url.host} port={url.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\nauth_type = plain\n"
        f"auth_file = {folder / 'users'}\npool_mode = {request.param}\n"
    )
    account = postgres.account()
    who: dict[str, Any] = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid}
    if account is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
    process = subprocess.Popen([program, folder / "pgbouncer.ini"], stderr=subprocess.DEVNULL, **who)
    try:
        there = url.set(port=listen)
        wait_until(lambda: answers(there), "PgBouncer answers")
        yield request.param, there.render_as_string(hide_password=False)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def answers(url: sa.URL) -> bool:
    try:
        psycopg2.connect(url.set(drivername="postgresql").render_as_string(hide_password=False)).close()
    except psycopg2.OperationalError:
        return False
    return True


async def test_a_pooler_is_refused_that_changes_sessions_with_each_transaction(pooled: tuple[str, str]) -> None:
    mode, url = pooled

    async def use() -> None:
        async with Journal(create_engine(url), "broker") as journal:
            await journal.run(change)

    if mode == "session":
        await use()
        check_promises(url)
        return
    with pytest.raises(ConfigurationError) as refusal:
        check_promises(url)
    assert refusal.value.code == "pooler_loses_sessions"
    with pytest.raises(ConfigurationError) as refusal:
        await use()
    assert refusal.value.code == "pooler_loses_sessions"
