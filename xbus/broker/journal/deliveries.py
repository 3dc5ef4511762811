"""How far roles have come: their cursors, and the deliveries that go their own way. Each function is one short read."""

from collections.abc import Sequence

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.cursor import Cursor
from xbus.broker.journal.writes import Delivery
from xbus.states import DeliveryState

RESUMED = "resumed"
"""The code of a delivery that a person has taken up again; its attempts are counted anew."""


def read_cursors(connection: sa.Connection) -> dict[int, Cursor]:
    """Where each consumer role stands, by role id."""
    return {
        row.role_id: Cursor(
            row.role_id,
            row.from_position,
            row.until_position,
            row.position,
            Cursor.from_bitmap(bytes(row.done)),
            row.handed_to,
        )
        for row in connection.execute(sa.select(model.cursor))
    }


def read_role_services(connection: sa.Connection) -> dict[int, str]:
    """The service of each role by role id, removed roles included."""
    statement = sa.select(model.role.c.id, model.service.c.name).join(model.service)
    return {row.id: row.name for row in connection.execute(statement)}


def read_due_deliveries(connection: sa.Connection, role_id: int, services: Sequence[str], limit: int) -> list[Delivery]:
    """Delivery rows of a role that could be handed over now, lowest position first.

    Args:
        services: the worker services that are there.
        limit: how many rows at the most.
    """
    delivery = model.delivery.c
    served = sa.and_(delivery.state == DeliveryState.WAITING, model.service.c.name.in_(services))
    statement = (
        sa.select(
            delivery.role_id,
            delivery.envelope_id,
            delivery.position,
            delivery.state,
            delivery.attempts,
            delivery.code,
            delivery.cause,
            model.service.c.name,
        )
        .outerjoin(model.service, model.service.c.id == delivery.service_id)
        .where(delivery.role_id == role_id, sa.or_(delivery.state == DeliveryState.RETRY, served))
        .order_by(delivery.position)
        .limit(limit)
    )
    return [
        Delivery(role_id, envelope_id, position, DeliveryState(state), attempts, code, cause, service)
        for role_id, envelope_id, position, state, attempts, code, cause, service in connection.execute(statement)
    ]
