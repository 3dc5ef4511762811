"""Statements for the attempts of bulk workers, and for items that go from their outputs into events."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal.bulk.cleaning import LOST
from xbus.broker.journal.bulk.outputs import MISMATCH, read_totals
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.database.rows import insert_new
from xbus.broker.journal.writes import bulk as writes
from xbus.errors import JournalError
from xbus.states import ATTEMPT_MOVES, AttemptState, check_move

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

_SEGMENT = model.bulk_segment.c
_place = sa.tuple_(_SEGMENT.part, _SEGMENT.number)


def _bound(name: str) -> "sa.Tuple":
    return sa.tuple_(bindparam(f"{name}_part", type_=sa.Integer()), bindparam(f"{name}_number", type_=sa.Integer()))


_ITEMS_BEFORE = sa.func.sum(_SEGMENT["items"]).over(order_by=(_SEGMENT.part, _SEGMENT.number)) - _SEGMENT["items"]
_APPEND = sa.insert(model.segment).from_select(
    ["event_id", "first_index", "items", "data", "hash"],
    sa.select(
        bindparam("into_event", type_=sa.Uuid()),
        bindparam("from_index", type_=sa.BigInteger()) + _ITEMS_BEFORE,
        _SEGMENT["items"],
        _SEGMENT.data,
        _SEGMENT.hash,
    ).where(
        _SEGMENT.attempt_id == bindparam("of_attempt"),
        _place > _bound("after"),
        _place <= _bound("last"),
        _SEGMENT["items"] > 0,
    ),
)
"""The database copies items past this process, and nobody hashes them anew: their worker has."""


def begin(connection: sa.Connection, group: Sequence[writes.BeginAttempt]) -> list[bool]:
    # There may be one already that counts.
    insert = insert_new(connection, model.bulk_attempt)
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


def append(connection: sa.Connection, group: Sequence[writes.AppendOutput]) -> None:
    """Copy segments of outputs into events.

    Raises:
        JournalError: some of a page are not there any more (``output_lost``).
    """
    for write in group:
        page = write.page
        values = {
            "into_event": write.event_id,
            "from_index": write.first_index,
            "of_attempt": page.attempt_id,
            "after_part": page.after[0],
            "after_number": page.after[1],
            "last_part": page.last[0],
            "last_number": page.last[1],
        }
        if connection.execute(_APPEND, values).rowcount != page.segments:
            raise JournalError(f"the output of attempt {page.attempt_id} misses segments", code=LOST)


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
