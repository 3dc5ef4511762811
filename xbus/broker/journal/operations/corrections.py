"""Items that a person corrects for a role: rows beside what the emitter sent, which never changes."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.operations.parked_moves import CORRECTED, RepairDecision


@dataclass(frozen=True, slots=True)
class Correction:
    """An item as it was, and as a role gets it instead; see ``model.correction``."""

    role: str
    event_id: UUID
    index: int
    before: bytes
    after: bytes
    at: datetime
    reason: str


def read_corrections(connection: sa.Connection, envelope_id: UUID) -> list[Correction]:
    """What was corrected of an envelope, the oldest first: of several of one item for one role the last one stands."""
    correction = model.correction.c
    statement = (
        sa.select(
            model.role.c.login,
            correction.event_id,
            correction.item_index,
            correction.before,
            correction.after,
            correction.at,
            correction.reason,
        )
        .join(model.event, model.event.c.id == correction.event_id)
        .join(model.role, model.role.c.id == correction.role_id)
        .where(model.event.c.envelope_id == envelope_id)
        .order_by(correction.id)
    )
    return [
        Correction(role, event_id, index, bytes(before), bytes(after), at, reason)
        for role, event_id, index, before, after, at, reason in connection.execute(statement)
    ]


def add_correction(
    connection: sa.Connection,
    role_id: int,
    event_id: UUID,
    index: int,
    before: bytes,
    after: bytes,
    decision: RepairDecision,
) -> None:
    """Have a role get an item otherwise than it was sent.

    Args:
        connection: with a transaction open, in which it was made sure that the item is parked.
        before: as its emitter sent it.
        after: as the role is to get it.
    """
    row = {
        "role_id": role_id,
        "event_id": event_id,
        "item_index": index,
        "before": before,
        "after": after,
        "at": decision.at,
        "reason": decision.told,
    }
    connection.execute(sa.insert(model.correction).values(row))
    remember(connection, decision.at, "item", f"{role_id} {event_id} {index}", CORRECTED, decision.told)
