"""Questions of ``xbus doctor``: the database's clock, and what a graph lacks; bounded by the size of the bus file."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from xbus import model


def read_services_without_role(connection: sa.Connection) -> Sequence[str]:
    """Read the names of the services that are in a present graph and that no role in use serves."""
    service, role, node = model.service.c, model.role.c, model.node.c
    is_served = sa.exists().where(role.service_id == service.id, role.removed_at.is_(None))
    is_in_graph = sa.exists().where(node.service_id == service.id, node.graph_id.in_(_present_graphs()))
    statement = sa.select(service.name).where(is_in_graph, ~is_served).order_by(service.name)
    return connection.execute(statement).scalars().all()


def read_types_without_node(connection: sa.Connection) -> Sequence[str]:
    """Read the names of the event types in use whose present graph has no node."""
    event_type, graph, node = model.event_type.c, model.graph.c, model.node.c
    leads_somewhere = sa.exists().where(
        graph.event_type_id == event_type.id, graph.id.in_(_present_graphs()), node.graph_id == graph.id
    )
    statement = sa.select(event_type.name).where(event_type.removed_at.is_(None), ~leads_somewhere)
    return connection.execute(statement.order_by(event_type.name)).scalars().all()


def _present_graphs() -> "sa.Select[tuple[int]]":
    """Select the newest graph of each event type in use."""
    graph, event_type = model.graph.c, model.event_type.c
    newer = model.graph.alias().c
    is_newest = ~sa.exists().where(newer.event_type_id == graph.event_type_id, newer.number > graph.number)
    in_use = sa.select(event_type.id).where(event_type.removed_at.is_(None))
    return sa.select(graph.id).where(graph.event_type_id.in_(in_use), is_newest)


def read_clock(connection: sa.Connection, now: datetime) -> datetime:
    """Read the clock of PostgreSQL's machine; SQLite has that of this one.

    Args:
        now: the time here.
    """
    if connection.dialect.name == "sqlite":
        return now
    told: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return told
