"""Makes sure that a database can keep what the bus promises: commits that last, and sessions that are the bus's own."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias, cast

import sqlalchemy as sa

from xbus.broker.journal.database.engine import READ_ONLY, create_engine, journal_errors
from xbus.broker.journal.database.postgres_session import PostgresSession, is_read_only, read_only_error
from xbus.errors import ConfigurationError

log = logging.getLogger(__name__)

ROUNDS = 3
"""The number of comparisons of two sessions. More find a pooler that changes servers seldom, and take longer."""

POOLER_LOSES_SESSIONS = "pooler_loses_sessions"
STANDBY_NOT_SYNCHRONOUS = "standby_not_synchronous"
STANDBY_CAUSE = "a standby of PostgreSQL is attached, and no commit waits for it: a fail-over to it loses what it lacks"
STANDBY_STEP = "name it in synchronous_standby_names, as docs/backup.md tells"

_SETTING = sa.text("SELECT reset_val FROM pg_settings WHERE name = :name")
"""The value that the database gives a session, whatever the bus has set in its own."""

_LOST = {
    ("fsync", "off"): "a crash of its machine",
    ("synchronous_commit", "off"): "a crash of its server",
    ("synchronous_commit", "local"): "the loss of its server: a commit does not wait for a standby",
}
"""By setting and value: what loses a transaction that was committed."""

DATABASE_ENCODING = "database_encoding"
_KEEPS_ALL_TEXTS = "UTF8"

_STANDBYS = """
SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) > 0, count(*)
FROM pg_stat_replication AS walsender
WHERE application_name NOT IN ('pg_basebackup', 'pg_receivewal')
    AND NOT EXISTS (
        SELECT FROM pg_replication_slots WHERE active_pid = walsender.pid AND slot_type = 'logical'
    )
"""
_WANTED_STANDBYS = "SELECT current_setting('synchronous_standby_names') <> ''"

Transaction: TypeAlias = Callable[[], AbstractContextManager[int]]
"""Opens a transaction of a session, and gives the number of the server's process that serves it."""


def check_durable(connection: sa.Connection) -> None:
    """Make sure that a COMMIT means durable, and that texts of any language can be committed.

    Raises:
        ConfigurationError: a PostgreSQL that runs without fsync, or without waiting for disk and standby; or one whose
            database has another encoding than UTF-8 (``database_encoding``).
    """
    if connection.dialect.name != "postgresql":
        return
    for (setting, value), loss in _LOST.items():
        if connection.execute(_SETTING, {"name": setting}).scalar_one() == value:
            raise ConfigurationError(
                f"PostgreSQL runs with {setting} = {value}, so what it commits can be lost by {loss}",
                f"set {setting} = on for this database",
            )
    encoding = connection.execute(_SETTING, {"name": "server_encoding"}).scalar_one()
    if encoding != _KEEPS_ALL_TEXTS:
        raise ConfigurationError(
            f"the database keeps texts in {encoding}, and refuses keys and names that this encoding lacks",
            "create it with ENCODING 'UTF8' TEMPLATE template0, and set it up anew",
            code=DATABASE_ENCODING,
        )


def check_writable(connection: sa.Connection) -> None:
    """Make sure that a PostgreSQL takes writes.

    Raises:
        JournalUnavailable: it is a standby, or set to read-only.
    """
    if connection.dialect.name == "postgresql" and is_read_only(
        cast(PostgresSession, connection.connection.driver_connection)
    ):
        raise read_only_error()


def check_promises(url: str) -> None:
    """Make sure of all of it, over connections of one's own.

    Raises:
        ConfigurationError: the database can't keep what the bus promises.
        JournalUnavailable: it can't be reached, or only reads.
    """
    engine = create_engine(url)
    try:
        check_sessions(engine)
        with journal_errors(), engine.execution_options(**READ_ONLY).connect() as connection, connection.begin():
            check_durable(connection)
            check_writable(connection)
    finally:
        engine.dispose()


def has_asynchronous_standby(connection: sa.Connection) -> bool:
    """Check whether a standby is attached and no commit waits for one: a fail-over loses what it lacks."""
    if connection.dialect.name != "postgresql":
        return False
    is_waited_for, attached = connection.exec_driver_sql(_STANDBYS).one()
    # The states of others' sessions are hidden from roles without pg_monitor, the names that the server waits for not.
    is_wanted: bool = connection.exec_driver_sql(_WANTED_STANDBYS).scalar_one()
    return attached > 0 and not is_waited_for and not is_wanted


def check_sessions(engine: sa.Engine) -> None:
    """Make sure that a session has one process of the server for as long as it lasts.

    Raises:
        ConfigurationError: a pooler between gives each transaction another one (``pooler_loses_sessions``).
        JournalUnavailable: the database can't be reached.
    """
    if engine.dialect.name != "postgresql":
        return
    with journal_errors(), engine.connect() as one:
        if not _has_pooler(one):
            return
        with engine.connect() as other:
            if are_shared(lambda: _transaction(one), lambda: _transaction(other)):
                raise ConfigurationError(
                    "a pooler before PostgreSQL gives each transaction another session",
                    "set pool_mode = session for this database (PgBouncer), or let sqlalchemy.dburi lead to the server",
                    code=POOLER_LOSES_SESSIONS,
                )


def warn_of_standby(engine: sa.Engine) -> None:
    """Write to the log if a fail-over to an attached standby would lose what was acknowledged.

    Raises:
        JournalUnavailable: the database can't be reached.
    """
    with journal_errors(), engine.execution_options(**READ_ONLY).connect() as connection, connection.begin():
        if has_asynchronous_standby(connection):
            log.warning("%s: %s", STANDBY_CAUSE, STANDBY_STEP, extra={"action": STANDBY_NOT_SYNCHRONOUS})


def are_shared(one: Transaction, other: Transaction) -> bool:
    """Check whether two sessions share processes of the server, or change them between two transactions."""
    known: dict[Transaction, int] = {}
    for _ in range(ROUNDS):
        with one() as process:
            pass
        with other() as others_process:
            if others_process == process:
                return True
            with one() as later:
                found = {one: later, other: others_process}
        if later != process or any(known.get(each, process) != process for each, process in found.items()):
            return True
        known = found
        one, other = other, one
    return False


def _has_pooler(connection: sa.Connection) -> bool:
    """Check whether something between names another process than the one that serves."""
    with _transaction(connection) as process:
        driver = connection.connection.driver_connection
        assert driver is not None
        named: int = driver.info.backend_pid
        return named != process


@contextmanager
def _transaction(connection: sa.Connection) -> Iterator[int]:
    with connection.begin():
        yield connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()


NO_CHECKSUMS = (
    "PostgreSQL keeps no checksums of its pages, so a damaged page is read as if it were whole",
    "stop PostgreSQL and run pg_checksums --enable",
)
"""The cause and the next step where :func:`lacks_checksums`."""


def lacks_checksums(connection: sa.Connection) -> bool:
    """Check whether PostgreSQL reads its pages without comparing checksums. SQLite has none to turn on."""
    if connection.dialect.name != "postgresql":
        return False
    return bool(connection.exec_driver_sql("SHOW data_checksums").scalar_one() != "on")
