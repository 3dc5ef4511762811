"""The SQLite file of an outbox: its tables, and transactions that wait for the disk or not."""

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from xbus import private_files
from xbus.emitter.forks import leave_to_parent, tell_of_forks
from xbus.errors import Failed, Refused

log = logging.getLogger(__name__)

BUSY_SECONDS = 10.0
"""Seconds that a command beside the sending process waits for its turn."""

_APPLICATION = int.from_bytes(b"Xbus", "big")
"""Tells an outbox from the SQLite file of another program."""

_FORMAT = 2
_ADDITIONS = {
    1: (
        "ALTER TABLE envelope ADD COLUMN headers BLOB",
        "ALTER TABLE event ADD COLUMN headers BLOB",
        "ALTER TABLE event ADD COLUMN partition_key TEXT",
    )
}
"""The statements that make the next format of an older one."""

_SCHEMA = """
CREATE TABLE envelope (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL,            -- its idempotency key at the bus
    ordering_key TEXT,
    state TEXT NOT NULL CHECK (state IN ('writing', 'waiting', 'refused')),
    place INTEGER UNIQUE,         -- in the line; null while it is being written
    queued_at TEXT,
    bytes INTEGER NOT NULL,
    code TEXT,                    -- why the bus refused it
    cause TEXT,
    headers BLOB                  -- packed; null for none, as those of an event
);
CREATE INDEX envelope_state ON envelope (state, place);
CREATE TABLE event (
    id TEXT PRIMARY KEY,
    envelope_id TEXT NOT NULL REFERENCES envelope ON DELETE CASCADE,
    number INTEGER NOT NULL,
    type_name TEXT NOT NULL,
    estimate INTEGER NOT NULL,
    headers BLOB,
    partition_key TEXT,
    UNIQUE (envelope_id, number)
);
CREATE TABLE batch (
    event_id TEXT NOT NULL REFERENCES event ON DELETE CASCADE,
    first_index INTEGER NOT NULL,
    items INTEGER NOT NULL,
    data BLOB NOT NULL,           -- each item a msgpack bin, one after the other
    PRIMARY KEY (event_id, first_index)
);
CREATE TABLE trouble (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    code TEXT NOT NULL,
    cause TEXT NOT NULL,
    since TEXT NOT NULL
);
"""

_in_sqlite = threading.RLock()
"""Locked while SQLite works, so that no process is forked meanwhile. The child would wait for ever for a lock inside
SQLite that a thread of its parent had."""

os.register_at_fork(before=_in_sqlite.acquire, after_in_parent=_in_sqlite.release, after_in_child=_in_sqlite.release)


T = TypeVar("T")

Column: TypeAlias = int | float | str | bytes | None
"""The values of a column in SQLite."""


class OutboxFile:
    """The file, opened. To be used by one thread at a time.

    Args:
        path: the file, which is made where it is not there.

    Raises:
        Refused: it is no outbox (``outbox_broken``).
        Failed: it can't be opened (``outbox_failed``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        private_files.prepare(path)
        if private_files.is_open_to_others(path):
            log.warning("others may read the outbox; have its owner run: chmod 600 %s*", path)
        with self._told():
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._told():
                self._set_up()
        except BaseException:
            self._connection.close()
            raise
        tell_of_forks(self)

    def forked(self) -> None:
        """Leave the connection to the parent; this process must not close it."""
        leave_to_parent(self._connection)

    def close(self) -> None:
        """Close it."""
        with _in_sqlite:
            self._connection.close()

    def row(self, make: Callable[..., T], statement: str, *values: Column) -> T:
        """Read the one row that a query finds; see ``rows``."""
        return self.rows(make, statement, *values)[0]

    def rows(self, make: Callable[..., T], statement: str, *values: Column) -> list[T]:
        """Read all rows that a query finds.

        Args:
            make: makes a row of its columns, which are the arguments.
        """
        with self._told():
            return [make(*row) for row in self._connection.execute(statement, values)]

    @contextmanager
    def durable_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is on the disk when it ends, with all earlier writes."""
        with self._told():
            self._connection.execute("PRAGMA synchronous = FULL")
            try:
                with self.transaction() as connection:
                    yield connection
            finally:
                self._connection.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that a crash of the machine may undo, until a durable one follows it."""
        with self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            with _in_sqlite:
                yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in _BROKEN:
                raise Refused(
                    f"{self.path} is not an outbox, or is damaged: {error}",
                    "name another file, or save what you can from this one with sqlite3",
                    code="outbox_broken",
                ) from error
            raise Failed(
                f"the outbox {self.path} can't be used now: {error}",
                "check that the disk has room and that this user may write the file",
                code="outbox_failed",
            ) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise Refused(
                f"a value can't be stored: {error}",
                "give text without lone surrogates, and integers of up to 63 bits",
                code="wrong_arguments",
            ) from error

    def _set_up(self) -> None:
        # Looked at before anything is changed: it may be another program's.
        is_new = not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        if not is_new and (
            self._pragma("application_id") != _APPLICATION or self._pragma("user_version") not in (*_ADDITIONS, _FORMAT)
        ):
            raise Refused(f"{self.path} is not an outbox of this version", "name another file", code="outbox_broken")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if is_new:
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {_SCHEMA}"
                f" PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_FORMAT}; COMMIT"
            )

        else:
            self._upgrade()

    def _upgrade(self) -> None:
        """Bring a file of an older format to the present one, all or nothing."""
        with self.transaction() as connection:
            # In the transaction, as another process may open the file just now.
            for number in range(self._pragma("user_version"), _FORMAT):
                for statement in _ADDITIONS[number]:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


_BROKEN = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class _LockFile:
    """The file beside an outbox on which the lock is.

    Args:
        file: opened.
    """

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        tell_of_forks(self)

    def forked(self) -> None:
        """Close the copy: the lock would last as long as the child, also where nobody sends any more."""
        self.file.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from sending from an outbox. The lock ends with the process, however that ends.

    Raises:
        Refused: another one sends from it (``outbox_in_use``).
        Failed: the file beside the outbox can't be written (``outbox_failed``).
    """
    try:
        lock = _LockFile(open(f"{path}.lock", "a+", opener=private_files.opener))  # noqa: SIM115
    except OSError as error:
        raise Failed(
            f"{path}.lock can't be written: {error}", "check the permissions of its folder", code="outbox_failed"
        ) from error
    with lock.file as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Refused(
                f"process {file.read().strip()} sends from the outbox {path}",
                "give each emitter and each process an outbox of its own, or end that process first",
                code="outbox_in_use",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            # Unlocked by itself: a child may not have come to close its copy yet. In a child the file is closed.
            if not file.closed:
                fcntl.flock(file, fcntl.LOCK_UN)
