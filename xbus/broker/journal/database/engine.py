"""Engines for the two databases, and the one place where a driver's error becomes one of ours."""

import re
import sqlite3
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import psycopg2
import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from xbus import private_files
from xbus.broker.journal.database import postgres_session as sessions
from xbus.broker.journal.database.postgres_session import PostgresSession
from xbus.config.hosts import with_hosts_apart
from xbus.errors import ConfigurationError, JournalError, JournalRefused, JournalUnavailable

BUSY_TIMEOUT_MS = 10_000
"""Milliseconds that SQLite waits for the write of another process, such as an ``xbus apply``."""

SWITCH_AGAIN_SECONDS = 0.01

WAL_LIMIT_BYTES = 64 * 1024 * 1024
"""Bytes to which SQLite cuts its write-ahead log back after a checkpoint."""

CHECKPOINT_PAGES = 8_000
"""Pages of 4 KiB by which SQLite's log grows before a checkpoint, which costs two waits for the disk."""

SIGNS_OF_LIFE = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Seconds and milliseconds that PostgreSQL may be silent: a cable that was pulled sends no goodbye."""

READ_ONLY = {"xbus_read_only": True}
"""Execution options of a connection that only reads: SQLite then gives it no write lock, and refuses its writes."""

WRITES = {"xbus_read_only": False}
"""Execution options of a connection that writes again."""

OTHER_PLANS = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
"""Settings of PostgreSQL without which it finds rows by indexes, one after another."""

WRITING_SERVER = "read-write"
"""The kind of server that libpq looks for where an address names several and does not say which one."""


def parse_url(url: str) -> sa.URL:
    """Read an SQLAlchemy URL.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return sa.make_url(with_hosts_apart(url))
    except (exc.ArgumentError, ValueError) as error:
        # A port that is no number is a ValueError.
        raise ConfigurationError(
            "the database's address is not an SQLAlchemy URL", "correct sqlalchemy.dburi"
        ) from error


def create_engine(url: str, *, any_server: bool = False) -> sa.Engine:
    """Create an engine whose commits are durable, and whose errors do not repeat what was to be stored.

    Each session of the journal is made by it, and each transaction makes sure that its server is the one that writes.

    Args:
        url: an SQLAlchemy URL, ``sqlite:///file``, ``sqlite://`` (in memory) or ``postgresql://...``.
        any_server: for those who only read a database that is no journal, and to whom a standby will do.

    Raises:
        ConfigurationError: the URL is invalid, or of another database.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed)
    if parsed.get_backend_name() == "postgresql":
        # The driver that the bus brings along, whichever one the name alone would mean to SQLAlchemy.
        return _postgres(parsed.set(drivername="postgresql+psycopg2"), any_server)
    raise ConfigurationError(
        f"the journal can't be kept in {parsed.get_backend_name()}", "give sqlalchemy.dburi a sqlite or postgresql URL"
    )


def is_memory(engine: sa.Engine) -> bool:
    """Check whether the database lives in this process's memory, on one connection."""
    return isinstance(engine.pool, StaticPool)


def file_of(address: str) -> Path | None:
    """Give the file of a SQLite database; None for a database in memory, another kind, or a URI of SQLite's.

    Args:
        address: an SQLAlchemy URL that is valid.
    """
    url = parse_url(address)
    database = url.database or ""
    is_file = url.get_backend_name() == "sqlite" and database not in ("", ":memory:")
    return Path(database) if is_file and not database.startswith("file:") else None


def _postgres(url: sa.URL, any_server: bool) -> sa.Engine:
    arguments: dict[str, Any] = {**SIGNS_OF_LIFE, **sessions.ARGUMENTS}
    if not any_server and _names_several(url):
        arguments["target_session_attrs"] = url.query.get("target_session_attrs", WRITING_SERVER)
    engine = sa.create_engine(url, pool_pre_ping=False, connect_args=arguments, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def begin_session(session: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        sessions.begin_session(cast(PostgresSession, session))

    @event.listens_for(engine, "checkout")
    def refuse_closed(session: DBAPIConnection, *_: object) -> None:
        if cast(PostgresSession, session).closed:
            raise exc.DisconnectionError  # has the pool open another one

    if not any_server:

        @event.listens_for(engine, "begin")
        def check_server(connection: sa.Connection) -> None:
            session = cast(PostgresSession, connection.connection.driver_connection)
            reads = connection.get_execution_options().get("xbus_read_only", False)
            if sessions.is_read_only(session, reads=reads):
                connection.invalidate()
                raise sessions.read_only_error()

    return engine


def _names_several(url: sa.URL) -> bool:
    host = url.query.get("host", "")
    return not isinstance(host, str) or "," in host


def _sqlite(url: sa.URL) -> sa.Engine:
    arguments: dict[str, Any] = {"check_same_thread": False, "factory": SqliteSession}
    if url.database in (None, "", ":memory:"):
        engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True, poolclass=StaticPool)
    else:
        engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True)

    @event.listens_for(engine, "do_connect")
    def make_private(*_: object) -> None:
        if (path := file_of(str(url))) is not None:
            _check_place(path)
            private_files.prepare(path)

    @event.listens_for(engine, "connect")
    def set_up(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # The driver's own transaction control starts transactions late; "begin" below does it instead.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        cursor.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("xbus_read_only", False)
        cast(SqliteSession, driver_of(connection)).begin(reads=reads)

    return engine


def _check_place(path: Path) -> None:
    """Check that there may be a file: SQLite says of each fault that it can't open the file.

    Raises:
        JournalRefused: a folder is in its place, or its folder is missing.
    """
    if path.is_dir():
        raise JournalRefused(f"{path} is a folder, and no database", "name a file in sqlalchemy.dburi")
    if not path.parent.is_dir():
        cause = f"there is no folder {path.parent} for the file of the database"
        raise JournalRefused(cause, "make the folder, or correct sqlalchemy.dburi")


class SqliteSession(sqlite3.Connection):
    """A session of SQLite, which begins each transaction as one that reads or as one that writes."""

    _reads = False

    def begin(self, *, reads: bool) -> None:
        """Begin a transaction; one that reads can't write, and does not ask for the lock.

        A writer takes the lock at once: a transaction that reads first and writes later could not wait for it.
        """
        if reads is not self._reads:
            # Kept until the other kind begins: the sessions of readers then pay for it only once.
            self.execute(f"PRAGMA query_only = {reads:d}")
            self._reads = reads
        self.execute("BEGIN" if reads else "BEGIN IMMEDIATE")


class DriverTransaction:
    """A transaction straight at the driver, for statements that go past SQLAlchemy as well. It has begun.

    It takes a tenth of the calls. A statement of SQLAlchemy fails in it, or makes the next transaction fail.

    Args:
        connection: which is in no transaction.
        driver: that of it.

    Raises:
        JournalUnavailable: the database only reads.
    """

    __slots__ = ("_dialect", "_driver")

    def __init__(self, connection: sa.Connection, driver: DBAPIConnection) -> None:
        self._dialect = connection.dialect
        self._driver = driver
        if isinstance(driver, SqliteSession):
            driver.begin(reads=False)
            return
        session = cast(PostgresSession, driver)
        if sessions.is_read_only(session):
            connection.invalidate()
            raise sessions.read_only_error()
        session.begin_with_next()

    def commit(self) -> None:
        """Commit it."""
        self._dialect.do_commit(self._driver)  # type: ignore[arg-type]

    def rollback(self) -> None:
        """Roll it back, also where its commit has failed."""
        self._driver.rollback()


def driver_of(connection: sa.Connection) -> DBAPIConnection:
    """Give the driver's connection of one of SQLAlchemy."""
    driver: DBAPIConnection | None = connection.connection.dbapi_connection
    assert driver is not None, "a connection that is in use has one of its driver"
    return driver


def find_by_index(engine: sa.Engine) -> None:
    """Have PostgreSQL find rows by their indexes, in all sessions that an engine opens from now on.

    For a broker, which reads pages of tables that grow. The planner would read a whole table for each page where it has
    grown since PostgreSQL looked at it last.
    """
    if engine.dialect.name == "postgresql":
        event.listen(engine, "connect", _set_plans)


def _set_plans(session: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    sessions.set_once(cast(PostgresSession, session), [f"SET {name} = off" for name in OTHER_PLANS])


def _switch_to_wal(cursor: Any) -> None:
    """Have the file written ahead, as it is from the first time on.

    That first time SQLite does not wait for others who do the same: it says at once that the file is locked.
    """
    give_up_at = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(SWITCH_AGAIN_SECONDS)
        else:
            return


class _JournalErrors(AbstractContextManager[None, None]):
    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is not None and (translated := journal_error(error)) is not error:
            raise translated


def journal_errors() -> AbstractContextManager[None, None]:
    """Let nothing of the driver's out: callers see the errors of ``xbus.errors`` only.

    Raises:
        JournalUnavailable: the database can't be reached, is full, locked, read-only or shutting down.
        JournalError: the statement itself can't be carried out.
    """
    return _JOURNAL_ERRORS


_JOURNAL_ERRORS = _JournalErrors()


def journal_error(error: BaseException) -> BaseException:
    """Translate an error of the driver, which is the cause of ours; any other stays as it is."""
    if isinstance(error, _WRONG):
        if sessions.ends_session(error.orig if isinstance(error, exc.DBAPIError) else error):
            return _unavailable(error)
        return _caused(JournalError(f"the database refused a statement ({_first_line(error)})"), error)
    if isinstance(error, exc.DBAPIError | psycopg2.Error | sqlite3.Error):
        return _unavailable(error)
    if isinstance(error, exc.StatementError | ValueError | OverflowError):
        # The driver could not even write the value down, as with a zero character in a text for PostgreSQL.
        return _caused(JournalError(f"a value can't be stored ({error})"), error)
    return error


def _unavailable(error: Exception) -> JournalError:
    driver_error = error.orig if isinstance(error, exc.DBAPIError) else error
    if getattr(driver_error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        cause = f"the file of the database is none of SQLite ({_first_line(error)})"
        return _caused(JournalRefused(cause, "name another file in sqlalchemy.dburi, or restore a backup"), error)
    if isinstance(driver_error, psycopg2.OperationalError) and (refusal := _REFUSALS.search(str(driver_error))):
        cause = f"the server refuses the connection ({refusal[1] or refusal[2]})"
        return _caused(JournalRefused(cause, "correct login and database in sqlalchemy.dburi, or make them"), error)
    cause = f"the database can't do its work now ({_first_line(error)})"
    return _caused(JournalUnavailable(cause, "see that it runs and has room, then repeat"), error)


def _caused(error: JournalError, cause: Exception) -> JournalError:
    error.__cause__ = cause
    return error


_REFUSALS = re.compile(
    r"FATAL: +([^\n]*(?:authentication failed for user|no pg_hba\.conf entry for|no password supplied"
    r"|(?:database|role) \"[^\n]*\" does not exist|permission denied for database)[^\n]*)|(no password supplied)"
)
"""Refusals of classes 28 and 3D. The driver gives no SQLSTATE for an error of a connection, and its words only."""

_WRONG = (
    *(exc.IntegrityError, exc.DataError, exc.ProgrammingError, exc.NotSupportedError),
    # The hot statements go past SQLAlchemy, so the drivers' own come out of them.
    *(psycopg2.IntegrityError, psycopg2.DataError, psycopg2.ProgrammingError, psycopg2.NotSupportedError),
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.NotSupportedError),
)
"""Errors that say that the statement is wrong, whenever it comes."""


def _first_line(error: Exception) -> str:
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
