"""What storing costs without a bus: a connection, a table, and as little as can be around them."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Protocol
from uuid import UUID

import psycopg2
import sqlalchemy as sa

from xbus.broker.journal.database.binary_copy import copy_in
from xbus.broker.journal.log.segments import COPY_COLUMNS, SegmentRow, copy_rows

_COLUMNS = ", ".join(COPY_COLUMNS)
_PLACES = ", ".join("?" * len(COPY_COLUMNS))
_SEGMENTS = f"SELECT {_COLUMNS} FROM segment ORDER BY event_id, first_index"
_GROUPS = "SELECT sum(group_number) FROM writer"
_PAGE = "SELECT items, data FROM bare WHERE event_id = {0} AND first_index >= {0} ORDER BY first_index LIMIT {0}"


class Bare(Protocol):
    """A database without the bus, as durable as with it."""

    def insert(self, data: bytes) -> None:
        """One row, committed."""

    def store(self, rows: Sequence[SegmentRow]) -> None:
        """Segments in the fastest way that the database has, in one transaction."""

    def page(self, event_id: UUID, first_index: int, rows: int) -> list[tuple[int, bytes]]:
        """Number of items and data of the next stored segments of an event."""

    def segments(self) -> list[SegmentRow]:
        """All segments that a bus wrote into the same database."""

    def groups(self) -> int:
        """How many transactions a bus has committed in the same database."""

    def close(self) -> None:
        """End the connection."""


def connect(url: str) -> Bare:
    """The database at an SQLAlchemy URL, with tables of its own beside those of the bus."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _Sqlite(str(parsed.database))
    return _Postgres(url.replace("postgresql+psycopg2://", "postgresql://", 1))


class _Sqlite:
    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE IF NOT EXISTS single (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
            "CREATE TABLE IF NOT EXISTS bare (event_id CHAR(32) NOT NULL, first_index BIGINT NOT NULL, "
            "items INTEGER NOT NULL, data BLOB NOT NULL, hash BLOB NOT NULL, indices JSON, plain_bytes INTEGER, "
            "store_id INTEGER, "
            "PRIMARY KEY (event_id, first_index))",
        ):
            self._connection.execute(statement)

    def insert(self, data: bytes) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO single (data) VALUES (?)", (data,))
        self._connection.execute("COMMIT")

    def store(self, rows: Sequence[SegmentRow]) -> None:
        values = [(row.event_id.hex, *row[1:]) for row in rows]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(f"INSERT INTO bare ({_COLUMNS}) VALUES ({_PLACES})", values)
        self._connection.execute("COMMIT")

    def page(self, event_id: UUID, first_index: int, rows: int) -> list[tuple[int, bytes]]:
        return self._connection.execute(_PAGE.format("?"), (event_id.hex, first_index, rows)).fetchall()

    def segments(self) -> list[SegmentRow]:
        return [SegmentRow(UUID(row[0]), *row[1:]) for row in self._connection.execute(_SEGMENTS)]

    def groups(self) -> int:
        groups: int = self._connection.execute(_GROUPS).fetchone()[0]
        return groups

    def close(self) -> None:
        self._connection.close()


class _Postgres:
    def __init__(self, url: str) -> None:
        self._connection = psycopg2.connect(url)
        self._cursor = self._connection.cursor()
        self._cursor.execute("CREATE TABLE IF NOT EXISTS single (id BIGSERIAL PRIMARY KEY, data BYTEA NOT NULL)")
        self._cursor.execute(
            "CREATE TABLE IF NOT EXISTS bare (event_id UUID, first_index BIGINT, items INTEGER NOT NULL, "
            "data BYTEA NOT NULL, hash BYTEA NOT NULL, indices JSON, plain_bytes INTEGER, store_id INTEGER, "
            "PRIMARY KEY (event_id, first_index))"
        )
        self._cursor.execute("ALTER TABLE bare ALTER COLUMN data SET STORAGE EXTERNAL")
        self._connection.commit()

    def insert(self, data: bytes) -> None:
        self._cursor.execute("INSERT INTO single (data) VALUES (%s)", (data,))
        self._connection.commit()

    def store(self, rows: Sequence[SegmentRow]) -> None:
        copy_in(self._cursor, "bare", COPY_COLUMNS, copy_rows(rows))
        self._connection.commit()

    def page(self, event_id: UUID, first_index: int, rows: int) -> list[tuple[int, bytes]]:
        self._cursor.execute(_PAGE.format("%s"), (str(event_id), first_index, rows))
        return [(items, bytes(data)) for items, data in self._cursor.fetchall()]

    def segments(self) -> list[SegmentRow]:
        self._cursor.execute(_SEGMENTS)
        return [
            SegmentRow(UUID(event_id), first_index, items, bytes(data), bytes(digest), *others)
            for event_id, first_index, items, data, digest, *others in self._cursor.fetchall()
        ]

    def groups(self) -> int:
        self._cursor.execute(_GROUPS)
        row = self._cursor.fetchone()
        assert row is not None, "a sum is one row"
        self._connection.rollback()
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


def read_all(bare: Bare, rows: Sequence[SegmentRow], page_rows: int) -> Iterator[bytes]:
    """The data of these segments, read back page by page."""
    ends = {row.event_id: row.first_index + row.items for row in rows}
    for event_id, end in ends.items():
        index = 0
        while index < end:
            page = bare.page(event_id, index, page_rows)
            index += sum(items for items, _ in page)
            yield from (data for _, data in page)
