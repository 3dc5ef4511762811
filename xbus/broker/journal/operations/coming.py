"""The deliveries that are still to come by themselves, for programs that wait until a bus is quiet."""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.role_progress import read_owed_ahead
from xbus.broker.journal.operations.roles import COMING
from xbus.states import DeliveryState


@dataclass(frozen=True, slots=True)
class ComingDelivery:
    """An envelope that comes to a consumer role without a decision of a person.

    Args:
        role: the role's login.
        position: the envelope's.
        cause: why it has not come yet; empty where it is only its turn that is to come.
        waits_for: the worker service without which it waits; None in other states.
    """

    role: str
    position: int
    cause: str = ""
    waits_for: str | None = None


def list_coming(connection: sa.Connection) -> list[ComingDelivery]:
    """List what is to come for each role on the bus: all its rows, and the first envelope ahead of its cursor.

    An envelope of an ordered role is left out where it waits behind a parked one.
    """
    role = model.role.c
    cursors = read_cursors(connection)
    roles = connection.execute(
        sa.select(role.id, role.login, role.service_id).where(role.removed_at.is_(None), role.detached_at.is_(None))
    ).all()
    found = [*_in_rows(connection)]
    for role_id, login, service_id in roles:
        if role_id in cursors:
            ahead = read_owed_ahead(connection, cursors[role_id], service_id, 1)
            found += [ComingDelivery(login, position) for position, _ in ahead]
    return found


def _in_rows(connection: sa.Connection) -> Iterator[ComingDelivery]:
    delivery, parked = model.delivery.c, model.delivery.alias("parked")
    is_behind_parked = sa.exists().where(
        parked.c.role_id == delivery.role_id,
        parked.c.ordering_key == delivery.ordering_key,
        parked.c.state == DeliveryState.PARKED.value,
        delivery.state == DeliveryState.HELD.value,
    )
    statement = (
        sa.select(model.role.c.login, delivery.position, delivery.cause, model.service.c.name)
        .join(model.role, model.role.c.id == delivery.role_id)
        .outerjoin(model.service, model.service.c.id == delivery.service_id)
        .where(
            delivery.state.in_([state.value for state in COMING]),
            model.role.c.removed_at.is_(None),
            model.role.c.detached_at.is_(None),
            ~is_behind_parked,
        )
        .select_from(model.delivery)
        .order_by(model.role.c.login, delivery.position)
    )
    for login, position, cause, service in connection.execute(statement):
        yield ComingDelivery(login, position, cause, service)
