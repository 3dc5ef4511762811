"""The outputs that count at the start of the back, and how far each has come.

Each function is one short read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import columns_for, value_of
from xbus.broker.journal.log.deliveries import OUTPUT_NOT_READY, SELECT_DELIVERIES, as_delivery
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import AttemptState, DeliveryState


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """An attempt that counts: in the making, or ready.

    Args:
        graph_id: the version of the graph with the node.
        node: the node's name.
        role_id: the worker role that makes it.
        event_items: the number of the event's items.
        items: the number of its own items; None unless it is ready.
    """

    attempt_id: UUID
    event_id: UUID
    envelope_id: UUID
    graph_id: int
    node: str
    role_id: int
    state: AttemptState
    started_at: datetime
    lease_until: datetime
    progress: float
    event_items: int
    items: int | None


def read_live_attempts(connection: sa.Connection) -> list[LiveAttempt]:
    """Read all attempts that count, the oldest first."""
    attempt = model.bulk_attempt.c
    statement = (
        sa.select(
            *columns_for(LiveAttempt, model.bulk_attempt),
            *(attempt.id.label("attempt_id"), model.event.c.envelope_id, model.event.c["items"].label("event_items")),
            *(model.node.c.graph_id, model.node.c.name.label("node")),
        )
        .join(model.node, model.node.c.id == attempt.node_id)
        .join(model.event, model.event.c.id == attempt.event_id)
        .where(attempt.state.in_((AttemptState.BUILDING, AttemptState.READY)))
        .order_by(attempt.started_at)
    )
    return [value_of(LiveAttempt, row, state=AttemptState(row.state)) for row in connection.execute(statement)]


def read_node_id(connection: sa.Connection, graph_id: int, name: str) -> int:
    """Read the id of a node of a version of a graph."""
    statement = sa.select(model.node.c.id).where(model.node.c.graph_id == graph_id, model.node.c.name == name)
    node_id: int = connection.execute(statement).scalar_one()
    return node_id


def read_awaiting(connection: sa.Connection) -> Sequence[DeliveryRow]:
    """Read the deliveries that wait for outputs, lowest position first."""
    delivery = model.delivery.c
    statement = SELECT_DELIVERIES.where(
        delivery.state == DeliveryState.WAITING, delivery.code == OUTPUT_NOT_READY
    ).order_by(delivery.position)
    return [as_delivery(row) for row in connection.execute(statement)]
