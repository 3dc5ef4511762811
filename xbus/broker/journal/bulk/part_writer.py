"""Writing the output of a bulk worker, part by part and side by side, past the broker.

A part counts for nothing until the broker has checked all parts and the attempt is ready. From then on, and when the
attempt is given up, no part can be written any more.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.side_files import NewFile, folder_of, new_file, path_of
from xbus.broker.journal.database.binary_copy import BIG_INTEGER, END, HEADER, INTEGER, copy_in, pack_row
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.database.engine import create_engine, journal_errors, parse_url
from xbus.errors import ConfigurationError, JournalError
from xbus.states import AttemptState

NOT_BUILDING = "attempt_not_building"
"""The error code for writers of an attempt that is not building any more: going on helps nobody."""

COLUMNS = ("attempt_id", "part", "number", "items", "data", "hash", "first_index", "sources")
COPY_BYTES = 4 * 1024 * 1024
"""Bytes of one COPY. More of them cost fewer round trips and take more memory."""

COMMIT_SECONDS = 10
"""Seconds from an executor's last look to its COMMIT. One that stops in between holds up the broker for so long."""


@dataclass(frozen=True, slots=True)
class PartSummary:
    """The totals of a written part.

    Args:
        hashes: SHA-256 of each segment's data, joined in order.
    """

    part: int
    items: int
    data_bytes: int
    hashes: bytes


def output_hash(parts: Iterable[PartSummary]) -> bytes:
    """Hash an output of these parts, as in ``model.bulk_attempt``; they may come in any order."""
    return hashlib.sha256(b"".join(part.hashes for part in sorted(parts, key=lambda part: part.part))).digest()


@contextmanager
def open_part(
    url: str, attempt_id: UUID, part: int, *, copy_bytes: int = COPY_BYTES, commit_seconds: int = COMMIT_SECONDS
) -> Iterator["PartWriter"]:
    """Open a part of an output, to be written whole.

    Without an error it replaces an earlier version of the part; with one it leaves nothing.

    Args:
        url: the journal's SQLAlchemy URL; an SQLite file is named from the root on, as a configuration gives it.
        attempt_id: of an attempt that is building.
        part: its number; a Spark task writes the part of its partition.
        copy_bytes: PostgreSQL gets so many bytes at a time.
        commit_seconds: PostgreSQL ends the transaction of an executor that stops for so long before its COMMIT.

    Raises:
        JournalError: attempt_not_building: it is over, or nobody ever began it.
        JournalUnavailable: the database or the disk can't be written now; nothing is kept.
        ConfigurationError: the URL can't be used.
    """
    parsed = parse_url(url)
    folder = folder_of(parsed)
    if folder is not None:
        _check_building(url, attempt_id)
        with new_file(path_of(folder, attempt_id, part)) as file:
            writer = PartWriter(attempt_id, part, _Filling(file))
            yield writer
            writer.close()
            _check_building(url, attempt_id)
    elif parsed.get_backend_name() == "sqlite":
        raise ConfigurationError("a database in memory has no other writers", "give sqlalchemy.dburi a file")
    else:
        with _transaction(url) as connection:
            with journal_errors():
                _take_place(connection, attempt_id, part)
            writer = PartWriter(attempt_id, part, _Copying(connection, copy_bytes))
            yield writer
            writer.close()
            with journal_errors():
                # From here to the end of the transaction the broker can't have the attempt ended.
                _lock_building(connection, attempt_id, commit_seconds)


@contextmanager
def _transaction(url: str) -> Iterator[sa.Connection]:
    """Open a transaction as ``connection.writing`` does, but raise the caller's exceptions unchanged."""
    engine = create_engine(url)
    try:
        with journal_errors():
            connection = engine.connect()
        try:
            with journal_errors():
                transaction = connection.begin()
            yield connection
            with journal_errors():
                transaction.commit()
        finally:
            with contextlib.suppress(JournalError), journal_errors():
                connection.close()
    finally:
        engine.dispose()


class Target(Protocol):
    """Takes the pieces of rows, in the format of ``binary_copy``, without header and end."""

    def write(self, pieces: list[bytes]) -> None:
        """Take the pieces of a row."""

    def close(self) -> None:
        """Close it: no more rows come."""


class PartWriter:
    """Writes segments of a part; use ``open_part``.

    Args:
        target: where they go.
    """

    def __init__(self, attempt_id: UUID, part: int, target: Target) -> None:
        self._attempt_id = attempt_id
        self._part = part
        self._target = target
        self._items = self._data_bytes = 0
        self._hashes: list[bytes] = []

    def write(self, items: int, data: bytes, first_index: int, sources: bytes | None) -> None:
        """Write a segment.

        Args:
            items: the number of its items.
            data: each as a msgpack bin, one after the other; about as large as the broker's ``max_batch_bytes``.
            first_index: the index of the event's item from which the first one was made, if ``sources`` is None.
            sources: for each item that index, as 8 bytes little endian; -1 for none in particular.

        Raises:
            JournalUnavailable: the database or the disk can't be written now.
        """
        if sources is not None and len(sources) != 8 * items:
            raise ValueError(f"{len(sources)} bytes of sources are not those of {items} items")
        digest = hashlib.sha256(data).digest()
        fields = (
            *(self._attempt_id.bytes, INTEGER.pack(self._part), INTEGER.pack(len(self._hashes))),
            *(INTEGER.pack(items), data, digest, BIG_INTEGER.pack(first_index if sources is None else 0), sources),
        )
        self._target.write(pack_row(fields))
        self._items += items
        self._data_bytes += len(data)
        self._hashes.append(digest)

    def close(self) -> None:
        """Write the gathered segments."""
        self._target.close()

    @property
    def written(self) -> PartSummary:
        """The totals up to now."""
        return PartSummary(self._part, self._items, self._data_bytes, b"".join(self._hashes))


class _Copying:
    """Copy the gathered segments, again and again in one transaction."""

    def __init__(self, connection: sa.Connection, copy_bytes: int) -> None:
        self._connection = connection
        self._copy_bytes = copy_bytes
        self._gathered: list[bytes] = []
        self._size = 0

    def write(self, pieces: list[bytes]) -> None:
        self._gathered += pieces
        self._size += sum(map(len, pieces))
        if self._size >= self._copy_bytes:
            self.close()

    def close(self) -> None:
        if not self._size:
            return
        rows, self._gathered, self._size = self._gathered, [], 0
        with journal_errors(), closing(self._connection.connection.cursor()) as cursor:
            copy_in(cursor, "bulk_segment", COLUMNS, rows)


class _Filling:
    """All pieces into a file."""

    def __init__(self, file: NewFile) -> None:
        self._file = file
        file.write([HEADER])

    def write(self, pieces: list[bytes]) -> None:
        self._file.write(pieces)

    def close(self) -> None:
        self._file.write([END])


_SETTINGS = (
    # The database must notice soon that an executor's machine is gone, because the connection still has the lock of its
    # part.
    "SET LOCAL tcp_keepalives_idle = 5; SET LOCAL tcp_keepalives_interval = 5; SET LOCAL tcp_keepalives_count = 3;"
    "SET LOCAL tcp_user_timeout = 15000; SET LOCAL lock_timeout = '60s'"
)

_ATTEMPT_STATE = sa.select(model.bulk_attempt.c.state).where(model.bulk_attempt.c.id == sa.bindparam("attempt_id"))


def _check_building(url: str, attempt_id: UUID) -> None:
    with reading(url) as connection:
        _let_pass(connection.execute(_ATTEMPT_STATE, {"attempt_id": attempt_id}).scalar_one_or_none(), attempt_id)


def _take_place(connection: sa.Connection, attempt_id: UUID, part: int) -> None:
    """Become the only writer of this part, and remove an earlier version of it."""
    connection.exec_driver_sql(_SETTINGS)
    # A task that Spark gave up may still be at work: what comes first is waited for, and then replaced.
    lock = int.from_bytes(hashlib.sha256(attempt_id.bytes + INTEGER.pack(part)).digest()[:8], "big", signed=True)
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))
    _let_pass(connection.execute(_ATTEMPT_STATE, {"attempt_id": attempt_id}).scalar_one_or_none(), attempt_id)
    segment = model.bulk_segment
    connection.execute(sa.delete(segment).where(segment.c.attempt_id == attempt_id, segment.c.part == part))


def _lock_building(connection: sa.Connection, attempt_id: UUID, commit_seconds: int) -> None:
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{commit_seconds}s'")
    locking = _ATTEMPT_STATE.with_for_update(read=True)
    _let_pass(connection.execute(locking, {"attempt_id": attempt_id}).scalar_one_or_none(), attempt_id)


def _let_pass(state: str | None, attempt_id: UUID) -> None:
    if state != AttemptState.BUILDING.value:
        raise JournalError(
            f"attempt {attempt_id} is not building any more ({state or 'gone'})", "abandon it", code=NOT_BUILDING
        )
