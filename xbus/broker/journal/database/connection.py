"""A connection for a program that does one thing with the database and ends, such as a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import sqlalchemy as sa

from xbus.broker.journal.database.engine import READ_ONLY, create_engine, journal_errors, parse_url
from xbus.errors import JournalError, JournalRefused, JournalUnavailable

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
