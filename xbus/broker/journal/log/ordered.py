"""The deliveries of roles that want order, key by key. Each function is one short read."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.deliveries import SELECT_DELIVERIES, as_delivery
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import DeliveryState


@dataclass(frozen=True, slots=True)
class HeldKey:
    """An ordering key of which a role has delivery rows: from the lowest position to the highest."""

    role_id: int
    ordering_key: str
    lowest: int
    highest: int


def read_held_keys(connection: sa.Connection, role_ids: Collection[int]) -> list[HeldKey]:
    """Read all keys of which ordered roles have rows."""
    return [HeldKey(*row) for row in connection.execute(_held_keys(role_ids))]


def read_free_keys(connection: sa.Connection, role_ids: Collection[int]) -> list[HeldKey]:
    """Read those whose lowest row is marked as blocked, though nothing blocks it any more."""
    keys = _held_keys(role_ids).subquery()
    delivery = model.delivery.c
    is_lowest = sa.and_(delivery.role_id == keys.c.role_id, delivery.position == keys.c.lowest)
    statement = sa.select(keys).join(model.delivery, is_lowest).where(delivery.state == DeliveryState.HELD)
    return [HeldKey(*row) for row in connection.execute(statement)]


def _held_keys(role_ids: Collection[int]) -> "sa.Select[int, str, int, int]":
    delivery = model.delivery.c
    return (
        sa.select(
            delivery.role_id,
            delivery.ordering_key,
            sa.func.min(delivery.position).label("lowest"),
            sa.func.max(delivery.position).label("highest"),
        )
        .where(delivery.role_id.in_(role_ids), delivery.ordering_key.is_not(None))
        .group_by(delivery.role_id, delivery.ordering_key)
    )


def read_key_rows(connection: sa.Connection, role_id: int, ordering_key: str, limit: int) -> list[DeliveryRow]:
    """Read the rows of one key, lowest position first."""
    delivery = model.delivery.c
    statement = (
        SELECT_DELIVERIES.where(delivery.role_id == role_id, delivery.ordering_key == ordering_key)
        .order_by(delivery.position)
        .limit(limit)
    )
    return [as_delivery(row) for row in connection.execute(statement)]


def read_states(connection: sa.Connection, role_id: int, positions: Sequence[int]) -> dict[int, DeliveryState]:
    """Read the states of a role's rows at some positions, by position; positions without a row are left out."""
    delivery = model.delivery.c
    statement = sa.select(delivery.position, delivery.state).where(
        delivery.role_id == role_id, delivery.position.in_(positions)
    )
    return {position: DeliveryState(state) for position, state in connection.execute(statement)}
