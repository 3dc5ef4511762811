"""Reads how far roles have come: cursors, and delivery rows. Each function is one short read."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRow, NamedRows, columns_for, value_of
from xbus.broker.journal.writes import DeliveryRow
from xbus.broker.journal.writes.cursor import Cursor
from xbus.states import DeliveryState

RESUMED = "resumed"
"""The code of a delivery that a person has taken up again; its attempts are counted anew."""

WORKER_ABSENT = "worker_absent"
"""The code of a delivery that waits for a worker."""

OUTPUT_NOT_READY = "output_not_ready"
"""The code of a delivery that waits until a bulk worker has made the output of a node."""


def worker_absent(service: str) -> str:
    """Word the cause of a delivery that waits for a worker of a service."""
    return f'no worker of service "{service}" is there, or each is in trouble'


SELECT_DELIVERIES: NamedRows = sa.select(
    *columns_for(DeliveryRow, model.delivery), model.service.c.key.label("service")
).outerjoin(model.service, model.service.c.id == model.delivery.c.service_id)
"""Rows of deliveries, for ``as_delivery``."""


def as_delivery(row: NamedRow) -> DeliveryRow:
    """Make a delivery of a row of ``SELECT_DELIVERIES``."""
    values = row._asdict()
    return DeliveryRow(**values | {"state": DeliveryState(values["state"])})


def read_cursors(connection: sa.Connection) -> dict[int, Cursor]:
    """Read the cursor of each consumer role, by role id."""
    return {
        row.role_id: value_of(Cursor, row, above=Cursor.from_bitmap(bytes(row.done)))
        for row in connection.execute(sa.select(model.cursor))
    }


def read_role_services(connection: sa.Connection) -> dict[int, str]:
    """Read the key of each role's service by role id, removed roles included."""
    statement = sa.select(model.role.c.id, model.service.c.key).join(model.service)
    return {row.id: row.key for row in connection.execute(statement)}


def read_due_deliveries(
    connection: sa.Connection,
    role_id: int,
    services: Sequence[str],
    limit: int,
    now: datetime,
    arrived_at: datetime | None = None,
    among: Sequence[int] | None = None,
) -> list[DeliveryRow]:
    """Read the delivery rows of a role that could be handed over now, lowest position first.

    Args:
        services: the keys of the worker services that are there.
        now: what is to be tried again is left out before its time;
        arrived_at: but where it failed before the role's recipient came, it waits no longer.
        among: the positions of the rows that are asked about; None for all.
    """
    delivery = model.delivery.c
    served = sa.and_(delivery.state == DeliveryState.WAITING, model.service.c.key.in_(services))
    is_time = [delivery.due_at.is_(None), delivery.due_at <= now]
    if arrived_at is not None:
        is_time.append(delivery.changed_at < arrived_at)
    retried = sa.and_(delivery.state == DeliveryState.RETRY, sa.or_(*is_time))
    statement = (
        SELECT_DELIVERIES.where(delivery.role_id == role_id, _is_among(among), sa.or_(retried, served))
        .order_by(delivery.position)
        .limit(limit)
    )
    return [as_delivery(row) for row in connection.execute(statement)]


def read_next_due(
    connection: sa.Connection, role_id: int, now: datetime, among: Sequence[int] | None = None
) -> datetime | None:
    """Read when the next retry of a role becomes due; None without any.

    Args:
        among: the positions of the rows that are asked about; None for all.
    """
    delivery = model.delivery.c
    statement = sa.select(sa.func.min(delivery.due_at)).where(
        delivery.role_id == role_id, _is_among(among), delivery.state == DeliveryState.RETRY, delivery.due_at > now
    )
    due_at: datetime | None = connection.execute(statement).scalar_one()
    return due_at


def _is_among(positions: Sequence[int] | None) -> sa.ColumnElement[bool]:
    return sa.true() if positions is None else model.delivery.c.position.in_(positions)
