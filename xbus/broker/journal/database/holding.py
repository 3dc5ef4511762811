"""Holds the file of an SQLite journal, so that two brokers never write to it.

The lock is flock(2) on the file itself: whoever opens it by another name, such as a hard link, meets it, too. It is
apart from the locks of SQLite (fcntl(2)), so commands go on writing. But closing any descriptor of a file drops the
process's own locks of the other kind on it. So the descriptor is opened before SQLite opens the file, and closed after.
"""

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import sqlalchemy as sa

from xbus import private_files
from xbus.broker.journal.database.engine import file_of
from xbus.errors import JournalError

log = logging.getLogger(__name__)

WAIT_SECONDS = 1.0
"""Seconds to wait for a broker that is just ending. More delay the refusal of a second broker."""

LOOK_AGAIN_SECONDS = 0.05

IN_USE = "journal_in_use"


def hold(engine: sa.Engine, holder: Callable[[], str], wait_seconds: float = WAIT_SECONDS) -> int | None:
    """Hold the file of a database; None for a database without one.

    Closing the returned descriptor gives the file free, and so does the end of the process. No connection of this
    process may be open to the file any more.

    Args:
        engine: has no connection yet.
        holder: reads who holds it, for the error.
        wait_seconds: for a holder that is just ending.

    Raises:
        JournalError: another broker holds it (``journal_in_use``).
    """
    path = _path(engine.url)
    descriptor = None if path is None else _open(path)
    if descriptor is None:
        return None
    give_up_at = time.monotonic() + wait_seconds
    while not _lock(descriptor):
        if time.monotonic() > give_up_at:
            who = holder()
            os.close(descriptor)
            raise JournalError(
                f"another broker writes to the journal {path} ({who})",
                "stop that broker first; a link to a journal is the same journal",
                code=IN_USE,
            )
        time.sleep(LOOK_AGAIN_SECONDS)
    return descriptor


def write_back(engine: sa.Engine) -> None:
    """Write SQLite's log into the file itself.

    A program that opens the file by a hard link has another log, and reads the holder in the file.
    """
    connection = engine.raw_connection()
    try:
        # Others who read may delay some of it: then the next checkpoint does that.
        connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.OperationalError as error:
        log.info("the log of SQLite is not written back: %s", error, extra={"action": "not_written_back"})
    finally:
        connection.close()


def _path(url: sa.URL) -> Path | None:
    """Give the file of a database, also if a URI of SQLite's names it."""
    database = url.database or ""
    if url.get_backend_name() != "sqlite" or not database.startswith("file:"):
        return file_of(url.render_as_string(hide_password=False))
    name = unquote(database.removeprefix("file:").partition("?")[0])
    return None if name == ":memory:" or url.query.get("mode") == "memory" else Path(name)


def _open(path: Path) -> int | None:
    """Open the file; None if it can't be opened, as SQLite tells why."""
    private_files.prepare(path)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # A file system without such locks: SQLite's own would fail there as well.
        log.warning("the journal's file can't be locked: %s", error, extra={"action": "journal_not_held"})
    return True
