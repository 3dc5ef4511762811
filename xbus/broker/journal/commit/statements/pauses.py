"""Statements that end pauses whose time is over."""

from collections.abc import Sequence

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.log.catalog import read_pauses


def end(connection: sa.Connection, group: Sequence[writes.EndPauses]) -> None:
    now = max(write.now for write in group)
    over = [found for found in read_pauses(connection).values() if found.is_over(now)]
    for found in over:
        remember(connection, now, found.kind.value, found.name, "resumed", "its time was over")
    # A trigger raises the version of the configuration.
    connection.execute(sa.delete(model.pause).where(model.pause.c.until <= now))
