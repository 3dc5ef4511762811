"""A connection to a journal that nobody else has open, for what must not happen beside a running broker."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.connection import check_there
from xbus.broker.journal.database.engine import create_engine, is_memory, journal_errors
from xbus.errors import ConfigurationError, JournalError

LOOK_MS = 500
"""Milliseconds to wait for others who have the journal open: a command that just ends may do so."""

LOOK_AGAIN_SECONDS = 0.05

MOST_NAMED = 3
"""The most sessions that the error names."""

LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL's code of a lock that another session has."""

_SESSIONS = """
SELECT COALESCE(usename, 'unknown') || ' from ' || COALESCE(host(client_addr), 'this machine')
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL
    AND COALESCE(backend_type, 'client backend') = 'client backend'
ORDER BY pid
"""


@contextmanager
def alone(url: str) -> Iterator[sa.Connection]:
    """Open a connection in a transaction of which all reads see one state, and keep every broker out meanwhile.

    Raises:
        JournalError: somebody else has the journal open (``journal_in_use``), or the SQLite file does not exist.
        ConfigurationError: the URL names neither SQLite nor PostgreSQL, or a database in memory.
        JournalUnavailable: the database can't be reached.
    """
    check_there(url)
    engine = create_engine(url)
    try:
        check_lasting(engine)
        with journal_errors():
            if engine.dialect.name == "postgresql":
                engine = engine.execution_options(isolation_level="REPEATABLE READ")
            with engine.connect() as connection:
                _prepare(connection)
                with _taken(connection):
                    yield connection
    finally:
        engine.dispose()


def check_lasting(engine: sa.Engine) -> None:
    """Make sure that a database outlives this program.

    Raises:
        ConfigurationError: it is in memory.
    """
    if is_memory(engine):
        raise ConfigurationError("a database in memory ends with its program", "name a file or a server")


def _prepare(connection: sa.Connection) -> None:
    """Have SQLite lock the file by the next transaction: each open connection of another process forbids that."""
    if connection.dialect.name == "sqlite":
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute(f"PRAGMA busy_timeout = {LOOK_MS}")
        driver.execute("PRAGMA locking_mode = EXCLUSIVE")


@contextmanager
def _taken(connection: sa.Connection) -> Iterator[None]:
    try:
        transaction = connection.begin()
        if connection.dialect.name == "postgresql":
            # A broker that starts meanwhile waits here until its database seems silent, and gives up.
            connection.exec_driver_sql(f"LOCK TABLE {model.writer.name} IN EXCLUSIVE MODE NOWAIT")
    except (sa.exc.OperationalError, sqlite3.OperationalError) as error:
        if _is_lock(error):
            raise _in_use("another program") from error
        raise
    with transaction:
        if connection.dialect.name == "postgresql":
            _check_sessions(connection)
        yield


def _check_sessions(connection: sa.Connection) -> None:
    """Make sure that PostgreSQL has no other session in the database; one that just ends is waited for.

    Raises:
        JournalError: it has (``journal_in_use``).
    """
    give_up_at = time.monotonic() + LOOK_MS / 1000
    while sessions := connection.exec_driver_sql(_SESSIONS).scalars().all():
        if time.monotonic() > give_up_at:
            more = f" and {len(sessions) - MOST_NAMED} more" if len(sessions) > MOST_NAMED else ""
            raise _in_use(", ".join(sessions[:MOST_NAMED]) + more)
        time.sleep(LOOK_AGAIN_SECONDS)
        # A transaction sees the sessions as they were when it looked first.
        connection.exec_driver_sql("SELECT pg_stat_clear_snapshot()")


def _is_lock(error: Exception) -> bool:
    cause = error.orig if isinstance(error, sa.exc.OperationalError) else error
    return "locked" in str(cause) or getattr(cause, "pgcode", None) == LOCK_NOT_AVAILABLE


def _in_use(who: str) -> JournalError:
    return JournalError(
        f"the journal is in use ({who})",
        "stop the broker, and all else that has the database open, then repeat",
        code="journal_in_use",
    )
