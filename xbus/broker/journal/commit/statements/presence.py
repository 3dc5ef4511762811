"""Statements for the presence of recipients, which operators see."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.database.rows import columns_of

_DELETE = sa.delete(model.presence).where(model.presence.c.role_id == bindparam("of_role"))
_INSERT = sa.insert(model.presence)


def note(connection: sa.Connection, group: Sequence[writes.NotePresence]) -> None:
    for write in group:
        if not write.rows:
            continue
        positions = _positions(connection, write.rows)
        connection.execute(_DELETE, [{"of_role": row.role_id} for row in write.rows])
        values = [
            {
                **columns_of(row),
                "state": row.state.value,
                "work": _with_positions(row.work, positions),
                "instances": None
                if row.instances is None
                else [{**each, "work": _with_positions(each["work"], positions)} for each in row.instances],
                "noted_at": write.at,
            }
            for row in write.rows
        ]
        connection.execute(_INSERT, values)


def _positions(connection: sa.Connection, rows: Sequence[writes.PresenceRow]) -> Mapping[UUID, int]:
    ids = {UUID(work["envelope_id"]) for row in rows for work in _works(row)}
    if not ids:
        return {}
    statement = sa.select(model.envelope.c.id, model.envelope.c.position).where(model.envelope.c.id.in_(ids))
    return dict(connection.execute(statement).all())


def _works(row: writes.PresenceRow) -> Iterator[writes.PresenceWork]:
    yield from row.work or ()
    for instance in row.instances or ():
        yield from instance["work"] or ()


def _with_positions(
    works: Sequence[writes.PresenceWork] | None, positions: Mapping[UUID, int]
) -> list[writes.PresenceWork] | None:
    """The position is None where it has none yet: an event that is asked about comes ahead of its envelope."""
    if not works:
        return None
    return [{**work, "position": positions.get(UUID(work["envelope_id"]))} for work in works]
