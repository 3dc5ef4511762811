"""Asks the database what time it is."""

from datetime import datetime

import sqlalchemy as sa


def read_clock(connection: sa.Connection, now: datetime) -> datetime:
    """Read the clock of PostgreSQL's machine; SQLite has that of this one.

    Args:
        now: the time here.
    """
    if connection.dialect.name == "sqlite":
        return now
    told: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return told
