"""A connection for a program that does one thing with the database and ends, such as a command."""

import sqlite3
import time
from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.engine import READ_ONLY, create_engine, is_memory, journal_errors, parse_url
from xbus.errors import ConfigurationError, JournalError, JournalRefused, JournalUnavailable

Connection: TypeAlias = sa.Connection
"""The type of a connection, for modules that only hand it on."""


NO_DATABASE = "no_database"
"""The code of the error of those who read a file that is not there."""


@contextmanager
def writing(url: str) -> Iterator[sa.Connection]:
    """Open a connection in a transaction, and commit it at the end unless an exception comes out.

    Args:
        url: the database's SQLAlchemy URL.

    Raises:
        JournalUnavailable: the database can't be reached or written.
        ConfigurationError: the URL names neither SQLite nor PostgreSQL.
    """
    with _connected(create_engine(url)) as connection, connection.begin():
        yield connection


@contextmanager
def reading(url: str) -> Iterator[sa.Connection]:
    """Open a connection as :func:`writing` does, for reading only: it keeps no writer waiting.

    Raises:
        JournalError: the SQLite file does not exist (``no_database``).
    """
    with connected(url) as connection, connection.begin():
        yield connection


@contextmanager
def connected(url: str, *, any_server: bool = False) -> Iterator[sa.Connection]:
    """Open a connection for many short reads, each in a transaction: ``with connection.begin(): ...``.

    Args:
        any_server: whether a standby will do.

    Raises:
        JournalError: as of ``reading``.
    """
    check_there(url)
    with _connected(create_engine(url, any_server=any_server).execution_options(**READ_ONLY)) as connection:
        yield connection


@contextmanager
def connected_to_states(url: str) -> Iterator[sa.Connection]:
    """Open a connection as :func:`connected` does, each of whose transactions sees one state of the database.

    Raises:
        JournalError: as of ``reading``.
    """
    check_there(url)
    engine = create_engine(url).execution_options(**READ_ONLY)
    if engine.dialect.name == "postgresql":
        # A transaction that reads in SQLite sees one state anyway.
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with _connected(engine) as connection:
        yield connection


@contextmanager
def connected_to_write(url: str) -> Iterator[sa.Connection]:
    """Open a connection as :func:`connected` does, for many short transactions that also write.

    Raises:
        JournalError: as of ``reading``.
    """
    check_there(url)
    with _connected(create_engine(url)) as connection:
        yield connection


def check_there(url: str) -> None:
    """Make sure that the file of an SQLite URL is there.

    Raises:
        JournalError: it is not (``no_database``).
    """
    if is_missing_file(url):
        path = parse_url(url).database
        raise JournalError(f"there is no database {path}", "correct sqlalchemy.dburi", code=NO_DATABASE)


def is_missing_file(url: str) -> bool:
    """Check whether the URL names an SQLite file that does not exist: connecting would leave an empty one."""
    parsed = parse_url(url)
    path = parsed.database or ":memory:"
    return parsed.get_backend_name() == "sqlite" and not path.startswith((":", "file:")) and not Path(path).exists()


@contextmanager
def _connected(engine: sa.Engine) -> Iterator[sa.Connection]:
    try:
        with journal_errors(), _connect(engine) as connection:
            yield connection
    finally:
        engine.dispose()


def _connect(engine: sa.Engine) -> sa.Connection:
    try:
        with journal_errors():
            return engine.connect()
    except JournalRefused:
        raise
    except JournalUnavailable as error:
        raise JournalUnavailable(
            error.cause, "see that the database runs and that sqlalchemy.dburi is right"
        ) from error


# -- pool --------------------------------------------------------------------------------------------------------------
# Connections for a program that asks the journal again and again, in several threads at once.

T = TypeVar("T")


class ConnectionPool:
    """A few connections that stay open; each read and each write is a transaction of its own.

    Args:
        url: the database's SQLAlchemy URL.

    Raises:
        JournalError: the SQLite file does not exist (``no_database``).
        ConfigurationError: the URL names neither SQLite nor PostgreSQL.
    """

    def __init__(self, url: str) -> None:
        check_there(url)
        self._engine = create_engine(url)
        self._reader = self._engine.execution_options(**READ_ONLY)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a transaction that only reads and keeps no writer waiting.

        Raises:
            JournalUnavailable: the database can't be reached.
        """
        with self._transaction(self._reader) as connection:
            yield connection

    def read(self, ask: Callable[[sa.Connection], T]) -> T:
        """Give the answer to one question.

        Raises:
            JournalUnavailable: the database can't be reached.
        """
        with self.reading() as connection:
            return ask(connection)

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open a transaction, and commit it at the end unless an exception comes out.

        Raises:
            JournalUnavailable: the database can't be reached or written.
        """
        with self._transaction(self._engine) as connection:
            yield connection

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, engine: sa.Engine) -> Iterator[sa.Connection]:
        with journal_errors(), engine.connect() as connection, connection.begin():
            yield connection


# -- read turns --------------------------------------------------------------------------------------------------------
# Shares the threads that read the journal among those on whose behalf they read.

MOST_WAITING = 1000
"""Reads of a caller that may wait. More help callers that send many questions ahead, and take memory. The broker itself
has no such bound: it waits for its reads, and must not fail for their number."""

BROKER = b""
"""The caller of the reads that nobody called for."""


class ReadTurns:
    """Gives turns to reads; those that wait on behalf of different callers take them one after the other.

    So whoever asks a thousand questions ahead delays its own answers, and neither those of others nor what the broker
    reads for itself.

    Args:
        threads: the reads that are carried out side by side.
    """

    def __init__(self, threads: int) -> None:
        self._free = threads
        # The caller that has waited for longest is the first.
        self._waiting: dict[bytes, deque[Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: bytes) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the block.

        Raises:
            JournalUnavailable: too many reads of this caller wait.
        """
        if self._free:
            self._free -= 1
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._end()

    async def _wait(self, caller: bytes) -> None:
        waiting = self._waiting.setdefault(caller, deque())
        if caller != BROKER and len(waiting) >= MOST_WAITING:
            raise JournalUnavailable(
                f"{MOST_WAITING} calls of this connection wait for the journal", "wait for their answers, then repeat"
            )
        turn: Future[None] = get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                # The turn came in the same moment as the end of the wait.
                self._end()
            raise

    def _end(self) -> None:
        """Give the turn to the oldest read of the next caller, who then goes behind all others."""
        while self._waiting:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


# -- exclusive ---------------------------------------------------------------------------------------------------------
# A connection to a journal that nobody else has open, for what must not happen beside a running broker.

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
