"""Immediate replies: asked for by the front, given by the back."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.commit.statements.common import exactly_one
from xbus.states import REPLY_MOVES, ReplyState, check_move, predecessors

_MOVE = sa.update(model.reply).where(
    model.reply.c.event_id == bindparam("of_event"),
    model.reply.c.state.in_(bindparam("from_states", expanding=True)),
)
_INSERT = sa.insert(model.reply)
_CALL_OFF = (
    sa.update(model.reply)
    .where(model.reply.c.state == ReplyState.ASKED.value)
    .values(state=ReplyState.FAILED.value, code=bindparam("why"), cause=bindparam("in_words"))
)


def call_off(connection: sa.Connection, group: Sequence[writes.CallOffAsks]) -> None:
    check_move(REPLY_MOVES, ReplyState.ASKED, ReplyState.FAILED)
    for write in group:
        connection.execute(_CALL_OFF, {"why": write.code, "in_words": write.cause})


def ask(connection: sa.Connection, group: Sequence[writes.AskReply]) -> None:
    for write in group:
        values = {"state": ReplyState.ASKED.value, "until": write.until, "code": None, "cause": None}
        moved = connection.execute(_MOVE.values(values), _which(write.event_id, ReplyState.ASKED))
        if moved.rowcount == 0:
            row = {"event_id": write.event_id, "envelope_id": write.envelope_id, **values}
            connection.execute(_INSERT, row)


def move(connection: sa.Connection, group: Sequence[writes.MoveReply]) -> None:
    for write in group:
        values: dict[str, object] = {"state": write.state.value}
        if write.state is not ReplyState.GIVEN:
            values |= {"role_id": write.role_id, "data": write.data, "code": write.code, "cause": write.cause}
        moved = connection.execute(_MOVE.values(values), _which(write.event_id, write.state))
        exactly_one(moved, f"the reply to event {write.event_id} can't become {write.state} now")


def _which(event_id: object, state: ReplyState) -> dict[str, object]:
    return {"of_event": event_id, "from_states": [old.value for old in predecessors(REPLY_MOVES, state)]}
