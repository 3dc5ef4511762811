"""The role to which history is sent again, and the way by which it gets there now."""

from dataclasses import dataclass
from datetime import datetime
from shlex import quote

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.event_states import REROUTED
from xbus.broker.journal.log.repeats import read_consumer_services
from xbus.errors import Refused


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    """A consumer role that is owed what is received now, and an event type that leads to it.

    Args:
        graph_id: the present version of the type's graph.
        first_name: the name with which the type was made; hashes hold it.
    """

    type_name: str
    type_id: int
    role: str
    role_id: int
    service: str
    service_id: int
    graph_id: int
    first_name: str


def find_target(connection: sa.Connection, type_name: str, login: str) -> ReplayTarget:
    """Find a role and the way by which events of a type reach it now.

    Raises:
        Refused: the type (``unknown_type``) or the consumer role (``unknown_login``) does not exist, the role is
            detached (``role_detached``), the type has immediate replies (``reply_wanted``), or its present graph does
            not lead to the role (``role_not_reached``).
    """
    event_type = model.event_type.c
    of_type = connection.execute(
        sa.select(event_type.id, event_type.immediate_reply, event_type.first_name).where(
            event_type.name == type_name, event_type.removed_at.is_(None)
        )
    ).one_or_none()
    if of_type is None:
        raise Refused(f'there is no event type "{type_name}"', "xbus export shows the event types", code="unknown_type")
    role = _role(connection, login)
    if of_type.immediate_reply:
        raise Refused(
            f'events of type "{type_name}" have an immediate reply',
            "have their emitter send them anew, so that it gets the reply",
            code="reply_wanted",
        )
    graph_id = present_graph(connection, of_type.id)
    if role.service_id not in read_consumer_services(connection, [graph_id])[graph_id]:
        raise Refused(
            f'event type "{type_name}" has no node for service "{role.service}", of which role "{login}" is',
            "add the node with xbus apply",
            code="role_not_reached",
        )
    of_role = (login, role.id, role.service, role.service_id)
    return ReplayTarget(type_name, of_type.id, *of_role, graph_id, of_type.first_name)


def _role(connection: sa.Connection, login: str) -> "sa.Row[int, int, str, datetime | None]":
    role, service = model.role.c, model.service.c
    found = connection.execute(
        sa.select(role.id, role.service_id, service.name.label("service"), role.detached_at)
        .join(model.service, service.id == role.service_id)
        .where(role.login == login, role.removed_at.is_(None), service.kind == "consumer")
    ).one_or_none()
    if found is None:
        raise Refused(
            f'there is no consumer role "{login}"', "xbus recipient list shows the roles", code="unknown_login"
        )
    if found.detached_at is not None:
        raise Refused(
            f'the role "{login}" is detached: it is owed nothing',
            f"put it on the bus again first: xbus recipient attach {quote(login)}",
            code="role_detached",
        )
    return found


def present_graph(connection: sa.Connection, type_id: int) -> int:
    """Read the id of the version of a type's graph that new events take."""
    graph = model.graph.c
    newest = sa.select(graph.id).where(graph.event_type_id == type_id).order_by(graph.number.desc()).limit(1)
    graph_id: int = connection.execute(newest).scalar_one()
    return graph_id


def unreached_graphs(connection: sa.Connection, type_id: int, service_id: int) -> frozenset[int]:
    """Collect the versions of a type's graph by which its events never reach a service.

    Events of a version that leads nowhere take the next one that leads somewhere, so they count as events of that.
    """
    graph = model.graph.c
    versions = connection.execute(
        sa.select(graph.id).where(graph.event_type_id == type_id).order_by(graph.number.desc())
    )
    newest_first = versions.scalars().all()
    services = read_consumer_services(connection, newest_first)
    unreached: set[int] = set()
    taken: frozenset[int] = frozenset()
    for graph_id in newest_first:
        taken = services[graph_id] or taken
        if service_id not in taken:
            unreached.add(graph_id)
    return frozenset(unreached)


def is_rerouting(connection: sa.Connection, type_id: int) -> bool:
    """Check whether events of a type are to take a newer graph, and the back has not carried that out."""
    decision, graph = model.decision.c, model.graph.c
    pending = (
        sa.select(decision.id)
        .join(model.graph, graph.id == decision.graph_id)
        .where(decision.move == REROUTED, graph.event_type_id == type_id)
    )
    return connection.execute(pending.limit(1)).first() is not None
