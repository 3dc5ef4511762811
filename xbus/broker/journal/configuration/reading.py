"""The stored configuration as entries that refer to each other by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import ColumnElement, Connection, Table, func, select

from xbus.broker.journal.configuration.entries import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
)
from xbus.broker.journal.log.catalog import read_graph, read_limits, read_service_names, read_version
from xbus.broker.journal.log.sessions import read_keys
from xbus.broker.journal.operations.event_types import read_paths
from xbus.broker.journal.writes import NO_LIMITS
from xbus.model import emitter, emitter_profile, event_type, graph, profile_event_type, role, service


@dataclass(frozen=True)
class Stored:
    """One version of the configuration.

    Args:
        version: its number.
        in_use: the present entries.
        removed: the former entries; naming one again brings it back.
    """

    version: int
    in_use: BusSpec
    removed: BusSpec

    @cached_property
    def ever(self) -> BusSpec:
        """The present and former entries."""
        return self.removed.with_all(self.in_use)


def read_stored(connection: Connection) -> Stored:
    """Read the present configuration, entries sorted by name, nodes in the order of their declaration."""
    return Stored(read_version(connection), _read_bus(connection, removed=False), _read_bus(connection, removed=True))


def read_current_nodes(connection: Connection, event_type_id: int) -> dict[str, NodeSpec] | None:
    """Read the nodes of the newest graph of an event type by name; None if it never had a graph."""
    newest = select(func.max(graph.c.number)).where(graph.c.event_type_id == event_type_id).scalar_subquery()
    graph_id = connection.execute(
        select(graph.c.id).where(graph.c.event_type_id == event_type_id, graph.c.number == newest)
    ).scalar_one_or_none()
    if graph_id is None:
        return None
    names = read_service_names(connection)
    nodes = read_graph(connection, graph_id).nodes.values()
    return {node.name: NodeSpec(node.name, names[node.service], tuple(sorted(node.children))) for node in nodes}


def _read_bus(connection: Connection, *, removed: bool) -> BusSpec:
    return BusSpec(
        event_types={entry.name: entry for entry in _event_types(connection, removed)},
        services={entry.name: entry for entry in _services(connection, removed)},
        roles={entry.login: entry for entry in _roles(connection, removed)},
        profiles={entry.name: entry for entry in _profiles(connection, removed)},
        emitters={entry.login: entry for entry in _emitters(connection, removed)},
    )


def _chosen(table: Table, removed: bool) -> ColumnElement[bool]:
    return table.c.removed_at.is_not(None) if removed else table.c.removed_at.is_(None)


def _event_types(connection: Connection, removed: bool) -> Iterator[EventTypeSpec]:
    rows = connection.execute(select(event_type).where(_chosen(event_type, removed)).order_by(event_type.c.name))
    for row in rows.all():
        nodes = read_current_nodes(connection, row.id) or {}
        yield EventTypeSpec(
            row.name, row.immediate_reply, nodes, row.bad_items, row.max_isolated, read_paths(row.secret)
        )


def _services(connection: Connection, removed: bool) -> Iterator[ServiceSpec]:
    rows = connection.execute(select(service).where(_chosen(service, removed)).order_by(service.c.name))
    return (
        ServiceSpec(row.name, row.kind, row.failures, row.attempts, row.first_delay, row.longest_delay, row.jitter)
        for row in rows.all()
    )


def _roles(connection: Connection, removed: bool) -> Iterator[RoleSpec]:
    rows = connection.execute(
        select(
            role.c.login,
            service.c.name,
            role.c.ordered,
            role.c.absent_minutes,
            role.c.parked_minutes,
            role.c.instances,
            role.c.standby,
            role.c.public_keys,
        )
        .join(service, service.c.id == role.c.service_id)
        .where(_chosen(role, removed))
        .order_by(role.c.login)
    )
    return (
        RoleSpec(
            row.login,
            row.name,
            row.ordered,
            absent_minutes=row.absent_minutes,
            parked_minutes=row.parked_minutes,
            instances=row.instances,
            standby=row.standby,
            keys=read_keys(row.public_keys),
        )
        for row in rows.all()
    )


def _profiles(connection: Connection, removed: bool) -> Iterator[ProfileSpec]:
    rows = connection.execute(
        select(emitter_profile.c.id, emitter_profile.c.name, event_type.c.name)
        .outerjoin(profile_event_type, profile_event_type.c.profile_id == emitter_profile.c.id)
        .outerjoin(event_type, event_type.c.id == profile_event_type.c.event_type_id)
        .where(_chosen(emitter_profile, removed))
        .order_by(emitter_profile.c.name)
    )
    allowed: dict[tuple[int, str], set[str]] = {}
    for profile_id, profile_name, type_name in rows:
        allowed.setdefault((profile_id, profile_name), set()).update([type_name] if type_name is not None else [])
    limits = read_limits(connection)
    return (
        ProfileSpec(name, frozenset(names), limits=limits.get((emitter_profile.name, profile_id), NO_LIMITS))
        for (profile_id, name), names in allowed.items()
    )


def _emitters(connection: Connection, removed: bool) -> Iterator[EmitterSpec]:
    rows = connection.execute(
        select(emitter.c.login, emitter_profile.c.name, emitter.c.id, emitter.c.public_keys)
        .join(emitter_profile, emitter_profile.c.id == emitter.c.profile_id)
        .where(_chosen(emitter, removed))
        .order_by(emitter.c.login)
    )
    limits = read_limits(connection)
    return (
        EmitterSpec(
            row.login,
            row.name,
            read_keys(row.public_keys),
            limits=limits.get((emitter.name, row.id), NO_LIMITS),
        )
        for row in rows.all()
    )
