"""Removal of what nobody needs any more, and how much there is."""

import sqlalchemy as sa

from xbus import model


def read_stored_bytes(connection: sa.Connection) -> int:
    """How many bytes the segments' data take together."""
    total = connection.execute(sa.select(sa.func.coalesce(sa.func.sum(model.writer.c.stored_bytes), 0))).scalar_one()
    return max(0, int(total))
