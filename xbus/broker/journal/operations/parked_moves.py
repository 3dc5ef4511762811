"""Repairs of a parked envelope: a person resumes it, corrects items of it, or drops it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.audit import RepairDecision, note_acts
from xbus.broker.journal.commit.statements.common import remember
from xbus.broker.journal.log.deliveries import RESUMED
from xbus.broker.journal.log.event_states import DROPPED
from xbus.broker.journal.operations.failures import role_name
from xbus.broker.journal.operations.parked import not_parked
from xbus.states import DELIVERY_MOVES, DeliveryState, check_move


def resume_delivery(connection: sa.Connection, role_id: int, envelope_id: UUID, decision: RepairDecision) -> None:
    """Have a parked envelope delivered again; its attempts are counted anew.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    if not resume_deliveries(connection, role_id, [envelope_id], decision):
        raise not_parked(connection, envelope_id)


def resume_deliveries(
    connection: sa.Connection, role_id: int, envelope_ids: Sequence[UUID], decision: RepairDecision
) -> int:
    """Have those of some envelopes delivered again that are parked still; how many they are."""
    check_move(DELIVERY_MOVES, DeliveryState.PARKED, DeliveryState.RETRY)
    delivery = model.delivery.c
    values = {
        "attempts": 0,
        "code": RESUMED,
        "cause": f"resumed by {decision.told}",
        "changed_at": decision.at,
        "due_at": None,
    }
    resumed = (
        sa.update(model.delivery)
        .where(
            delivery.role_id == role_id,
            delivery.envelope_id.in_(envelope_ids),
            delivery.state == DeliveryState.PARKED.value,
        )
        .values(state=DeliveryState.RETRY.value, **values)
        .returning(delivery.envelope_id)
    )
    moved = connection.execute(resumed).scalars().all()
    _remember(connection, role_id, moved, RESUMED, decision)
    return len(moved)


def drop_delivery(connection: sa.Connection, role_id: int, envelope_id: UUID, decision: RepairDecision) -> None:
    """Have a role go without a parked envelope, for good.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    check_move(DELIVERY_MOVES, DeliveryState.PARKED, DeliveryState.SETTLED)
    _move(connection, sa.delete(model.delivery), role_id, envelope_id)
    _remember(connection, role_id, [envelope_id], DROPPED, decision)


def hold_delivery(connection: sa.Connection, role_id: int, envelope_id: UUID) -> None:
    """Keep a parked envelope as it is until the end of the transaction: nobody else moves it meanwhile.

    Raises:
        Refused: it is no longer parked (``not_parked``).
    """
    untouched = sa.update(model.delivery).values(state=DeliveryState.PARKED.value)
    _move(connection, untouched, role_id, envelope_id)


def _move(connection: sa.Connection, statement: Any, role_id: int, envelope_id: UUID) -> None:
    delivery = model.delivery.c
    is_parked = sa.and_(
        delivery.role_id == role_id,
        delivery.envelope_id == envelope_id,
        delivery.state == DeliveryState.PARKED.value,
    )
    if connection.execute(statement.where(is_parked)).rowcount != 1:
        raise not_parked(connection, envelope_id)


def _remember(
    connection: sa.Connection, role_id: int, envelope_ids: Sequence[UUID], move: str, decision: RepairDecision
) -> None:
    role = role_name(connection, role_id)
    for envelope_id in envelope_ids:
        remember(connection, decision.at, "delivery", f"{role_id} {envelope_id}", move, decision.told)
    acts = [
        decision.act(move, f'envelope {envelope_id} for role "{role}"', before="parked") for envelope_id in envelope_ids
    ]
    note_acts(connection, acts)
