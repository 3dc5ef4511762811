"""Writing the output of a bulk worker, part by part and side by side, past the broker.

A part counts for nothing until the broker has checked all parts and the attempt is ready. From then on, and when the
attempt is given up, no part can be written any more.
"""

import contextlib
import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.side_files import NewFile, disk_errors, folder_of, new_file, parts_of, path_of
from xbus.broker.journal.database.binary_copy import (
    BIG_INTEGER,
    END,
    HEADER,
    INTEGER,
    broken_off,
    copy_in,
    pack_row,
    read_row,
)
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


# -- adoption ----------------------------------------------------------------------------------------------------------
# Adoption of side files: the broker takes over, step by step, what executors left beside an SQLite journal.
#
# It may be broken off and begun again at any step: what is there already tells where it goes on.

STEP_BYTES = 4 * 1024 * 1024
"""Bytes of data that one step takes over. Larger blocks other writes for longer and costs fewer commits."""

STEP_ROWS = 2_000

_INSERT = f"INSERT INTO bulk_segment ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


class Adoption:
    """Takes over the parts of an attempt. Do each step in a transaction of its own, until no more is left; a failed
    step may be repeated.

    Args:
        attempt_id: of an attempt that is building.

    Example:
        >>> adoption = Adoption(attempt_id)                         # doctest: +SKIP
        >>> while await journal.run(adoption.step):                 # doctest: +SKIP
        ...     pass
    """

    def __init__(self, attempt_id: UUID, *, step_bytes: int = STEP_BYTES, step_rows: int = STEP_ROWS) -> None:
        self._attempt_id = attempt_id
        self._step_bytes = step_bytes
        self._step_rows = step_rows
        self._offsets: dict[tuple[int, int], int] = {}

    def step(self, connection: sa.Connection) -> bool:
        """Take over some more; on PostgreSQL, which has no side files, do nothing.

        Returns:
            Whether more is left.

        Raises:
            JournalError: a file is damaged, or the attempt is over.
            JournalUnavailable: a file can't be read now.
        """
        folder = folder_of(connection.engine.url)
        if folder is None:
            return False
        last = self._last_adopted(connection)
        if last is None:
            self._check_building(connection)
        for part in parts_of(folder, self._attempt_id):
            if last is not None and part < last[0]:
                continue
            number = last[1] + 1 if last is not None and part == last[0] else 0
            if self._adopt_some(connection, path_of(folder, self._attempt_id, part), part, number):
                return True
        return False

    def _last_adopted(self, connection: sa.Connection) -> tuple[int, int] | None:
        segment = model.bulk_segment.c
        statement = (
            sa.select(segment.part, segment.number)
            .where(segment.attempt_id == self._attempt_id)
            .order_by(segment.part.desc(), segment.number.desc())
            .limit(1)
        )
        row = connection.execute(statement).one_or_none()
        return None if row is None else (row.part, row.number)

    def _check_building(self, connection: sa.Connection) -> None:
        state = sa.select(model.bulk_attempt.c.state).where(model.bulk_attempt.c.id == self._attempt_id)
        if connection.execute(state).scalar_one_or_none() != AttemptState.BUILDING.value:
            raise JournalError(f"attempt {self._attempt_id} is not building any more")

    def _adopt_some(self, connection: sa.Connection, path: Path, part: int, number: int) -> bool:
        """Take over rows of a file from a number on; whether there were any."""
        rows: list[tuple[object, ...]] = []
        size = 0
        with disk_errors(path), path.open("rb") as file:
            if file.read(len(HEADER)) != HEADER:
                raise broken_off()
            known = self._offsets.get((part, number))
            if known is None:
                for _ in range(number):
                    read_row(file)
            else:
                file.seek(known)
            while size < self._step_bytes and len(rows) < self._step_rows and (fields := read_row(file)) is not None:
                rows.append(self._row(fields, part, number + len(rows)))
                size += len(fields[4] or b"")
                # The next step may come here again, if only to find the end.
                self._offsets = {(part, number + len(rows)): file.tell()}
        if not rows:
            return False
        with closing(connection.connection.cursor()) as cursor:
            cursor.executemany(_INSERT, rows)
        return True

    def _row(self, fields: list[bytes | None], part: int, number: int) -> tuple[object, ...]:
        place = [self._attempt_id.bytes, INTEGER.pack(part), INTEGER.pack(number)]
        if len(fields) != len(COLUMNS) or fields[:3] != place:
            raise broken_off()
        items, data, digest, first_index, sources = fields[3:]
        if data is None or items is None or first_index is None or hashlib.sha256(data).digest() != digest:
            raise broken_off()
        try:
            count, first = INTEGER.unpack(items)[0], BIG_INTEGER.unpack(first_index)[0]
        except struct.error:
            raise broken_off() from None
        return (self._attempt_id.hex, part, number, count, data, digest, first, sources)
