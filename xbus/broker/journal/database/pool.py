"""Connections for a program that asks the journal again and again, in several threads at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import sqlalchemy as sa

from xbus.broker.journal.database.connection import check_there
from xbus.broker.journal.database.engine import READ_ONLY, create_engine, journal_errors

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
