"""Statements for the attempts of bulk workers."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.dialects import postgresql, sqlite

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.bulk.outputs import MISMATCH, read_totals
from xbus.broker.journal.commit.statements.common import remember
from xbus.errors import JournalError
from xbus.states import ATTEMPT_MOVES, AttemptState, check_move

_INSERTS = {
    # There may be one already that counts: the unique index decides, whoever else writes.
    "sqlite": sqlite.insert(model.bulk_attempt).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(model.bulk_attempt).on_conflict_do_nothing(),
}
_RENEW = (
    sa.update(model.bulk_attempt)
    .where(model.bulk_attempt.c.id == bindparam("attempt_id"))
    .where(model.bulk_attempt.c.state == AttemptState.BUILDING.value)
    .values(lease_until=bindparam("until"), progress=bindparam("share"))
)
_END = (
    sa.update(model.bulk_attempt)
    .where(model.bulk_attempt.c.id == bindparam("attempt_id"))
    .where(model.bulk_attempt.c.state == bindparam("from_state"))
    .values(
        state=bindparam("new_state"),
        ended_at=bindparam("at"),
        code=bindparam("why_code"),
        cause=bindparam("why"),
        items=bindparam("item_count"),
        bytes=bindparam("byte_count"),
        hash=bindparam("content"),
    )
)


def begin(connection: sa.Connection, group: Sequence[writes.BeginAttempt]) -> list[bool]:
    insert: Any = _INSERTS[connection.dialect.name]
    return [
        connection.execute(
            insert,
            {
                "id": write.attempt_id,
                "event_id": write.event_id,
                "node_id": write.node_id,
                "role_id": write.role_id,
                "state": AttemptState.BUILDING.value,
                "started_at": write.at,
                "lease_until": write.lease_until,
                "progress": 0.0,
            },
        ).rowcount
        == 1
        for write in group
    ]


def renew(connection: sa.Connection, group: Sequence[writes.RenewAttempt]) -> list[bool]:
    return [
        connection.execute(
            _RENEW, {"attempt_id": write.attempt_id, "until": write.lease_until, "share": write.progress}
        ).rowcount
        == 1
        for write in group
    ]


def end(connection: sa.Connection, group: Sequence[writes.EndAttempt]) -> list[bool]:
    return [_end_one(connection, write) for write in group]


def _end_one(connection: sa.Connection, write: writes.EndAttempt) -> bool:
    check_move(ATTEMPT_MOVES, AttemptState.BUILDING, write.state)
    values = {
        "attempt_id": write.attempt_id,
        "from_state": AttemptState.BUILDING.value,
        "new_state": write.state.value,
        "at": write.at,
        "why_code": write.code,
        "why": write.cause,
        "item_count": write.items,
        "byte_count": write.data_bytes,
        "content": write.hash,
    }
    if connection.execute(_END, values).rowcount != 1:
        return False
    if write.state is AttemptState.READY:
        # Only now can no executor add or replace a part any more.
        _check(connection, write)
    else:
        remember(connection, write.at, "attempt", str(write.attempt_id), write.state.value, write.cause or "")
    return True


def _check(connection: sa.Connection, write: writes.EndAttempt) -> None:
    found = read_totals(connection, write.attempt_id)
    if (found.items, found.data_bytes, found.hash) != (write.items, write.data_bytes, write.hash):
        raise JournalError(
            f"output {write.attempt_id} holds {found.items} items in {found.data_bytes} bytes, and {write.items} in "
            f"{write.data_bytes} bytes were announced; or others",
            code=MISMATCH,
        )
