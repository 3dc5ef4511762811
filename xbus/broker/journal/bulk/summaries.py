"""Summaries of the outputs that bulk workers made, or tried to make, of an envelope's events."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.cleaning import ARCHIVED


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """An attempt at the output of a node for an event.

    Args:
        number: of the event in its envelope.
        state: of ``AttemptState``, or ``archived`` where it was ready until its event was archived.
        progress: how far it is, from 0 to 1, as its worker said last; 1 where it is or was ready.
        items: None where it never was ready, and so is ``bytes``.
        code: why it came to nothing, and so is ``cause``; None where it did not.
    """

    attempt_id: UUID
    number: int
    node: str
    role: str
    state: str
    progress: float
    items: int | None
    bytes: int | None
    started_at: datetime
    ended_at: datetime | None
    code: str | None
    cause: str | None


def list_outputs(connection: sa.Connection, envelope_id: UUID, limit: int) -> list[OutputSummary]:
    """List the attempts for an envelope's events, by event and node, the newest of each first."""
    attempt = model.bulk_attempt.c
    statement = (
        sa.select(model.bulk_attempt, model.event.c.number, model.node.c.name, model.role.c.login)
        .join(model.event, model.event.c.id == attempt.event_id)
        .join(model.node, model.node.c.id == attempt.node_id)
        .join(model.role, model.role.c.id == attempt.role_id)
        .where(model.event.c.envelope_id == envelope_id)
        .order_by(model.event.c.number, attempt.node_id, attempt.started_at.desc())
        .limit(limit)
    )
    return [
        OutputSummary(
            attempt_id=row["id"],
            number=row["number"],
            node=row["name"],
            role=row["login"],
            state=_state(row),
            progress=row["progress"] if row["items"] is None else 1.0,
            items=row["items"],
            bytes=row["bytes"],
            started_at=row["started_at"],
            ended_at=row["ended_at"],
            code=row["code"],
            cause=row["cause"],
        )
        for row in connection.execute(statement).mappings()
    ]


def _state(row: sa.RowMapping) -> str:
    """Name the state for people: they need not search for the fault of an abandoned attempt."""
    was_ready = row["items"] is not None
    state: str = row["state"]
    return ARCHIVED if was_ready and row["code"] == ARCHIVED else state
