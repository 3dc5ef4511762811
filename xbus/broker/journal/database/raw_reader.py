"""Short reads on a connection of one's own, past SQLAlchemy: for those who read much, such as the executors of Spark.

On PostgreSQL rows come by binary COPY, which is three times as fast as SELECT where they are large. None of the reads
leaves a transaction open.
"""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast
from uuid import UUID

from xbus.broker.journal.database.binary_copy import BIG_INTEGER, INTEGER, unpack_rows
from xbus.broker.journal.database.engine import OTHER_PLANS, READ_ONLY, create_engine, is_memory, journal_errors
from xbus.broker.journal.database.postgres_session import is_read_only, read_only_error
from xbus.errors import ConfigurationError

R = TypeVar("R")

QueryValue: TypeAlias = int | str | UUID | Sequence[str]


@dataclass(frozen=True, slots=True)
class Query(Generic[R]):
    """A SELECT for both databases. Its rows are tuples of the type ``R``, as ``kinds`` tells at run time.

    Args:
        text: with its parameters as ``%(name)s``; these are numbers, texts, UUIDs, or on PostgreSQL lists of texts.
        kinds: a letter for each column: ``q`` for a BigInteger, ``i`` for an Integer, ``u`` for a UUID, ``b`` for
            bytes, ``s`` for a text, ``t`` for a moment.
    """

    text: str
    kinds: str


class Fetcher(Protocol):
    """A connection that reads."""

    def fetch(self, query: Query[R], **values: QueryValue) -> list[R]:
        """Fetch all rows that a query finds.

        Raises:
            JournalUnavailable: the database can't be read now.
        """


@contextmanager
def fetching(url: str) -> Iterator[Fetcher]:
    """Open a connection for reading.

    Args:
        url: the database's SQLAlchemy URL.

    Raises:
        JournalUnavailable: the database can't be reached, or its server is a standby, which may lack what others wrote.
        ConfigurationError: the URL is of neither database, or of SQLite in memory, which nobody else can read.
    """
    engine = create_engine(url).execution_options(**READ_ONLY)
    try:
        if is_memory(engine):
            raise ConfigurationError("a database in memory has no readers", "give sqlalchemy.dburi a file")
        with journal_errors():
            connection = engine.raw_connection()
        try:
            raw: Any = connection.driver_connection
            yield _Sqlite(raw) if engine.dialect.name == "sqlite" else _Postgres(raw)
        finally:
            connection.invalidate()
            connection.close()
    finally:
        engine.dispose()


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def fetch(self, query: Query[R], **values: QueryValue) -> list[R]:
        named = {name: value.hex if isinstance(value, UUID) else value for name, value in values.items()}
        with journal_errors(), closing(self._connection.cursor()) as cursor:
            rows = cursor.execute(_with_colons(query.text), named).fetchall()
        readings = [(place, _FROM_SQLITE[kind]) for place, kind in enumerate(query.kinds) if kind in _FROM_SQLITE]
        return cast("list[R]", [_read_some(row, readings) for row in rows] if readings else rows)


def _with_colons(text: str) -> str:
    return re.sub(r"%\((\w+)\)s", r":\1", text)


def _read_some(row: tuple[object, ...], readings: list[tuple[int, Callable[[Any], object]]]) -> tuple[object, ...]:
    values = list(row)
    for place, reading in readings:
        if values[place] is not None:
            values[place] = reading(values[place])
    return tuple(values)


_FROM_SQLITE: Mapping[str, Callable[[Any], object]] = {
    "u": UUID,
    "t": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
}


class _Postgres:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._check_server()
        connection.autocommit = True
        with journal_errors(), closing(connection.cursor()) as cursor:
            cursor.execute(";".join(f"SET {name} = off" for name in OTHER_PLANS))

    def fetch(self, query: Query[R], **values: QueryValue) -> list[R]:
        self._check_server()
        with journal_errors():
            return copy_out(self._connection, query, **values)

    def _check_server(self) -> None:
        """Check the server as each transaction of an engine does: a raw connection passes that check by.

        Raises:
            JournalUnavailable: the server is a standby, and a reader would take missing rows for removed ones.
        """
        if is_read_only(self._connection, reads=True):
            raise read_only_error()


def copy_out(connection: Any, query: Query[R], **values: QueryValue) -> list[R]:
    """Fetch all rows that a query finds, by binary COPY.

    Args:
        connection: psycopg2's, in a transaction or not.
    """
    named = {name: str(value) if isinstance(value, UUID) else value for name, value in values.items()}
    copied = _Copied()
    with closing(connection.cursor()) as cursor:
        text = cursor.mogrify(query.text, named).decode()
        cursor.copy_expert(f"COPY ({text}) TO STDOUT (FORMAT binary)", copied)
    readings = [_FROM_POSTGRES[kind] for kind in query.kinds]
    rows = [
        tuple(None if field is None else reading(field) for reading, field in zip(readings, fields, strict=True))
        for fields in unpack_rows(copied.messages)
    ]
    return cast("list[R]", rows)


class _Copied:
    """A file for psycopg2, which writes each message of a COPY by itself."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def write(self, message: bytes) -> int:
        self.messages.append(message)
        return len(message)


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_FROM_POSTGRES: Mapping[str, Callable[[bytes], object]] = {
    "i": lambda field: INTEGER.unpack(field)[0],
    "q": lambda field: BIG_INTEGER.unpack(field)[0],
    "u": lambda field: UUID(bytes=field),
    "b": lambda field: field,
    "s": bytes.decode,
    "t": lambda field: _EPOCH + timedelta(microseconds=BIG_INTEGER.unpack(field)[0]),
}
