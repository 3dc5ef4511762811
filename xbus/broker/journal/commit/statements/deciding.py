"""Statements for decisions of administrators about owed envelopes, as far as the back has carried them out."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import bindparam

from xbus import model
from xbus.broker.journal import writes
from xbus.broker.journal.log.contents import note_graphs

_REGRAPH = sa.update(model.event).where(model.event.c.id == bindparam("of_event")).values(graph_id=bindparam("takes"))
_INSERT_HISTORY = sa.insert(model.history)
_THIS_DECISION = model.decision.c.id == bindparam("of_decision")
_GO_ON = sa.update(model.decision).where(_THIS_DECISION).values(position=bindparam("dealt_with"))
_END = sa.delete(model.decision).where(_THIS_DECISION)


def decide(connection: sa.Connection, at: datetime, steps: Sequence[writes.Decided]) -> None:
    """Write down the steps, in the transaction of the cursors and rows that they moved."""
    for step in steps:
        if step.regraphed:
            connection.execute(_REGRAPH, [{"of_event": event_id, "takes": takes} for event_id, takes in step.regraphed])
            note_graphs(connection, step.regraphed)
        if step.let_go:
            history = [
                {
                    "at": at,
                    "subject": "delivery",
                    "subject_id": f"{role_id} {envelope_id}",
                    "move": move,
                    "reason": reason,
                }
                for role_id, envelope_id, move, reason in step.let_go
            ]
            connection.execute(_INSERT_HISTORY, history)
        if step.is_done:
            connection.execute(_END, {"of_decision": step.decision_id})
        else:
            connection.execute(_GO_ON, {"of_decision": step.decision_id, "dealt_with": step.position})
