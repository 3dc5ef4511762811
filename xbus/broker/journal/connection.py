"""A connection for a program that does one thing with the database and ends, such as a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import sqlalchemy as sa

from xbus.broker.journal.database import READ_ONLY, create_engine, journal_errors
from xbus.errors import JournalUnavailable

Connection: TypeAlias = sa.Connection
"""For those who hand a connection on and need not know what it is."""


@contextmanager
def writing(url: str) -> Iterator[sa.Connection]:
    """A connection in a transaction, which is committed at the end unless an exception comes out.

    Args:
        url: the database's SQLAlchemy URL.

    Raises:
        JournalUnavailable: the database can't be reached or written.
        ConfigurationError: the URL is none of SQLite or PostgreSQL.
    """
    with _connected(create_engine(url)) as connection, connection.begin():
        yield connection


@contextmanager
def reading(url: str) -> Iterator[sa.Connection]:
    """As :func:`writing`, for reading only: nobody who writes is kept waiting."""
    with _connected(create_engine(url).execution_options(**READ_ONLY)) as connection, connection.begin():
        yield connection


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """A connection for many short reads, each in a transaction of its own: ``with connection.begin(): ...``."""
    with _connected(create_engine(url).execution_options(**READ_ONLY)) as connection:
        yield connection


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
    except JournalUnavailable as error:
        raise JournalUnavailable(
            error.cause, "see that the database runs and that sqlalchemy.dburi is right"
        ) from error
