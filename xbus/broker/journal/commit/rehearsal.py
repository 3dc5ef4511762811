"""Tries whether a database that had no room for a write has room again, and leaves nothing of the try.

A full disk still takes small writes: a page of the log that is used again, a row in a page that is there. So the try is
as large as what was refused.
"""

import secrets
import sqlite3
from datetime import UTC, datetime

import psycopg2
import sqlalchemy as sa
from sqlalchemy import exc

from xbus import model
from xbus.errors import JournalUnavailable

NO_ROOM_CLASSES = ("53", "58", "XX")
"""The classes of PostgreSQL's SQLSTATEs for want of resources, errors of the system, and those that it did not expect:
a file that may not grow is among the last."""

SMALL_CACHE_KIB = 64
"""With such a cache SQLite writes new pages to its log before the end of the transaction."""

ORDINARY_CACHE_KIB = 2_000
"""SQLite's own default."""


def lacks_room(error: JournalUnavailable) -> bool:
    """Check whether the database could not store something, as far as its driver says: it was there, and not locked."""
    cause = error.__cause__
    driver = cause.orig if isinstance(cause, exc.DBAPIError) else cause
    if isinstance(driver, sqlite3.Error):
        code: int = getattr(driver, "sqlite_errorcode", 0) & 0xFF
        return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(driver, psycopg2.Error) and (driver.pgcode or "").startswith(NO_ROOM_CLASSES)


def rehearse(connection: sa.Connection, data_bytes: int) -> None:
    """Store so many bytes in the caller's transaction, and take them back.

    Raises:
        sqlalchemy.exc.DBAPIError: there is no room for them.
    """
    if not data_bytes:
        return
    _set_cache(connection, SMALL_CACHE_KIB)
    try:
        trial = connection.begin_nested()
        row = {"at": datetime.now(UTC), "subject": "rehearsal", "subject_id": "", "move": "rehearsed"}
        # Random, so that nothing compresses it.
        connection.execute(sa.insert(model.history), {**row, "reason": secrets.token_hex((data_bytes + 1) // 2)})
        trial.rollback()
    finally:
        _set_cache(connection, ORDINARY_CACHE_KIB)


def _set_cache(connection: sa.Connection, kibibytes: int) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA cache_size = -{kibibytes}")
