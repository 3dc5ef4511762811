"""Statements that end pauses whose time is over."""

from collections.abc import Sequence

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.audit import act_here, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.log.catalog import PAUSED_TABLES, read_pauses

OVER = "its time was over"

BROKER = "broker"
"""The name by which the audit knows the broker itself."""


def end(connection: sa.Connection, group: Sequence[writes.EndPauses]) -> None:
    now = max(write.now for write in group)
    over = [found for found in read_pauses(connection).values() if found.is_over(now)]
    if not over:
        return
    connection.execute(sa.update(model.configuration).values(version=model.configuration.c.version + 1, changing=True))
    # The database compares an end that can't be read as text.
    row = model.pause.c
    for found in over:
        is_found = (row.kind == found.kind.value, row.subject_id == found.subject_id)
        connection.execute(sa.delete(model.pause).where(*is_found))
    connection.execute(sa.update(model.configuration).values(changing=False))
    for found in over:
        remember(connection, now, found.kind.value, found.name, "resumed", OVER)
    things = [f'{PAUSED_TABLES[found.kind].name} "{found.name}"' for found in over]
    note_acts(connection, [act_here(now, "resumed", thing, who=BROKER, reason=OVER) for thing in things])
