"""What is in use of the configuration, as the front and the back read it; removed rows are left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, func, select

from xbus.graph import Graph, Node
from xbus.model import (
    configuration,
    edge,
    emitter,
    emitter_profile,
    event_type,
    graph,
    node,
    profile_event_type,
    role,
    service,
)


@dataclass(frozen=True)
class EventType:
    """An event type and the version of its graph that events started now will take."""

    id: int
    name: str
    immediate_reply: bool
    graph_id: int


@dataclass(frozen=True)
class EmitterEntry:
    """An emitter and the names of the event types that its profile allows."""

    id: int
    login: str
    event_types: frozenset[str]


@dataclass(frozen=True)
class RoleEntry:
    """A role, the name of the service that it provides, and whether that is a worker or a consumer."""

    id: int
    login: str
    service: str
    worker: bool


@dataclass(frozen=True)
class Catalog:
    """One version of the configuration: event types by name, emitters and roles by id."""

    version: int
    event_types: Mapping[str, EventType]
    emitters: Mapping[int, EmitterEntry]
    roles: Mapping[int, RoleEntry]

    @property
    def expects_replies(self) -> bool:
        """Whether there are event types with immediate replies."""
        return any(event_type.immediate_reply for event_type in self.event_types.values())


def read_version(connection: Connection) -> int:
    """The version of the configuration; cheap, for those who wait for a change."""
    version: int = connection.execute(select(configuration.c.version)).scalar_one()
    return version


def read_catalog(connection: Connection) -> Catalog:
    """The whole configuration that is in use.

    The version is read first: where a change slips in between, the next look at the version finds another one.
    """
    return Catalog(
        version=read_version(connection),
        event_types={entry.name: entry for entry in _event_types(connection)},
        emitters={entry.id: entry for entry in _emitters(connection)},
        roles={entry.id: entry for entry in _roles(connection)},
    )


def read_graph(connection: Connection, graph_id: int) -> Graph:
    """The version ``graph_id`` of an event type's graph; nodes and children as they were declared."""
    children: dict[int, list[str]] = {}
    for parent_id, name in connection.execute(
        select(edge.c.parent_id, node.c.name)
        .join(node, node.c.id == edge.c.child_id)
        .where(node.c.graph_id == graph_id)
        .order_by(node.c.id)
    ):
        children.setdefault(parent_id, []).append(name)
    rows = connection.execute(
        select(node.c.id, node.c.name, service.c.name, service.c.kind)
        .join(service, service.c.id == node.c.service_id)
        .where(node.c.graph_id == graph_id)
        .order_by(node.c.id)
    )
    return Graph(
        {
            name: Node(name, service_name, kind == "worker", tuple(children.get(node_id, ())))
            for node_id, name, service_name, kind in rows
        }
    )


def read_credentials(connection: Connection, kind: Literal["emitter", "role"], login: str) -> tuple[int, str] | None:
    """The id and the password hash of ``login``; None where it does not exist, is removed, or has no password."""
    table = emitter if kind == "emitter" else role
    row = connection.execute(
        select(table.c.id, table.c.password_hash).where(
            table.c.login == login, table.c.removed_at.is_(None), table.c.password_hash.is_not(None)
        )
    ).one_or_none()
    return None if row is None else (row.id, row.password_hash)


def _event_types(connection: Connection) -> list[EventType]:
    newest = (
        select(graph.c.event_type_id, func.max(graph.c.number).label("number"))
        .group_by(graph.c.event_type_id)
        .subquery()
    )
    rows = connection.execute(
        select(event_type.c.id, event_type.c.name, event_type.c.immediate_reply, graph.c.id.label("graph_id"))
        .join(newest, newest.c.event_type_id == event_type.c.id)
        .join(graph, (graph.c.event_type_id == event_type.c.id) & (graph.c.number == newest.c.number))
        .where(event_type.c.removed_at.is_(None))
        .order_by(event_type.c.name)
    )
    return [EventType(row.id, row.name, row.immediate_reply, row.graph_id) for row in rows]


def _emitters(connection: Connection) -> list[EmitterEntry]:
    allowed: dict[int, set[str]] = {}
    for profile_id, name in connection.execute(
        select(profile_event_type.c.profile_id, event_type.c.name)
        .join(event_type, event_type.c.id == profile_event_type.c.event_type_id)
        .join(emitter_profile, emitter_profile.c.id == profile_event_type.c.profile_id)
        .where(event_type.c.removed_at.is_(None), emitter_profile.c.removed_at.is_(None))
    ):
        allowed.setdefault(profile_id, set()).add(name)
    rows = connection.execute(
        select(emitter.c.id, emitter.c.login, emitter.c.profile_id)
        .where(emitter.c.removed_at.is_(None))
        .order_by(emitter.c.login)
    )
    return [EmitterEntry(row.id, row.login, frozenset(allowed.get(row.profile_id, ()))) for row in rows]


def _roles(connection: Connection) -> list[RoleEntry]:
    rows = connection.execute(
        select(role.c.id, role.c.login, service.c.name, service.c.kind)
        .join(service, service.c.id == role.c.service_id)
        .where(role.c.removed_at.is_(None), service.c.removed_at.is_(None))
        .order_by(role.c.login)
    )
    return [RoleEntry(role_id, login, service_name, kind == "worker") for role_id, login, service_name, kind in rows]
