"""The stored configuration as entries that refer to each other by name."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import ColumnElement, Connection, and_, exists, func, select

from xbus.broker.journal.configuration.bots import (
    is_chosen,
    is_of_bot,
    is_of_subscription,
    read_bots,
    read_subscriptions,
    without_end,
)
from xbus.broker.journal.configuration.chaining import SEPARATOR
from xbus.broker.journal.configuration.entries import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    ReaderSpec,
    RoleSpec,
    ServiceSpec,
)
from xbus.broker.journal.database.rows import grouped, value_of
from xbus.broker.journal.log.catalog import newest_graphs, read_graph, read_service_names, read_version
from xbus.broker.journal.log.emitters import read_limits
from xbus.broker.journal.log.sessions import read_keys
from xbus.broker.journal.operations.event_types import read_paths
from xbus.broker.journal.retention.lagging import limit_of
from xbus.broker.journal.writes import NO_LIMITS
from xbus.graph import Graph
from xbus.model import (
    emitter,
    emitter_profile,
    emitting_service,
    event_type,
    graph,
    lag_limit,
    profile_event_type,
    reader,
    reader_event_type,
    role,
    service,
)
from xbus.model import node as node_table


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
    types = dict(connection.execute(_TYPE_NAMES).all())
    return _as_named(read_graph(connection, graph_id), names, types)


def _as_named(stored: Graph, services: Mapping[str, str], types: Mapping[int, str]) -> dict[str, NodeSpec]:
    """Give the nodes as an administrator names them: a worker's node lists types in the place of nodes."""
    listed = {
        child: node.name
        for node in stored.nodes.values()
        for child in node.children
        if stored.nodes[child].emits is not None and child.startswith(f"{node.name}{SEPARATOR}")
    }
    emits: defaultdict[str, list[str]] = defaultdict(list)
    for node in stored.nodes.values():
        if node.emits is not None:
            emits[listed.get(node.name, node.name)].append(types[node.emits])
    return {
        node.name: NodeSpec(
            node.name,
            services[node.service] if node.emits is None else "",
            tuple(sorted(child for child in node.children if child not in listed)),
            tuple(sorted(emits[node.name])),
        )
        for node in stored.nodes.values()
        if node.name not in listed
    }


def _read_bus(connection: Connection, *, removed: bool) -> BusSpec:
    return BusSpec(
        event_types={entry.name: entry for entry in _event_types(connection, removed)},
        services={entry.name: entry for entry in _services(connection, removed)},
        readers={entry.name: entry for entry in _readers(connection, removed)},
        roles={entry.login: entry for entry in _roles(connection, removed)},
        profiles={entry.name: entry for entry in _profiles(connection, removed)},
        emitters={entry.login: entry for entry in _emitters(connection, removed)},
        bots={entry.name: entry for entry in read_bots(connection, removed=removed)},
        subscriptions={entry.name: entry for entry in read_subscriptions(connection, removed=removed)},
    )


def _event_types(connection: Connection, removed: bool) -> Iterator[EventTypeSpec]:
    rows = connection.execute(_EVENT_TYPES, {"removed": removed})
    # Buses may have thousands of types without a node: topics. So these cost no statement each.
    graphs = dict(connection.execute(_NEWEST_WITH_NODES).all())
    names = read_service_names(connection)
    types = dict(connection.execute(_TYPE_NAMES).all())
    for row in rows.all():
        nodes = _as_named(read_graph(connection, graphs[row.id]), names, types) if row.id in graphs else {}
        yield value_of(EventTypeSpec, row, nodes=nodes, secret=read_paths(row.secret))


def _services(connection: Connection, removed: bool) -> Iterator[ServiceSpec]:
    return (value_of(ServiceSpec, row) for row in connection.execute(_SERVICES, {"removed": removed}).all())


def _readers(connection: Connection, removed: bool) -> Iterator[ReaderSpec]:
    names = grouped(connection.execute(_TYPES_OF_READERS))
    return (
        value_of(
            ReaderSpec,
            row,
            event_types=frozenset(names[row.service_id]),
            max_lag=limit_of(row.envelopes, row.seconds),
            when_behind=row.when_behind or "alarm",
        )
        for row in connection.execute(_READERS, {"removed": removed}).all()
    )


def _roles(connection: Connection, removed: bool) -> Iterator[RoleSpec]:
    return (
        value_of(
            RoleSpec,
            row,
            service=row.name,
            keys=read_keys(row.public_keys),
            max_lag=limit_of(row.envelopes, row.seconds),
            when_behind=row.when_behind or "alarm",
        )
        for row in connection.execute(_ROLES, {"removed": removed}).all()
    )


def _profiles(connection: Connection, removed: bool) -> Iterator[ProfileSpec]:
    allowed: dict[tuple[int, str, str, str | None, float | None], set[str]] = {}
    for *profile, type_name in connection.execute(_PROFILES, {"removed": removed}):
        allowed.setdefault(tuple(profile), set()).update([type_name] if type_name is not None else [])
    limits = {subject: found for (kind, subject), found in read_limits(connection).items() if kind == "emitter_profile"}
    return (
        ProfileSpec(name, frozenset(names), None, limits.get(profile_id, NO_LIMITS), new_types, clients, keep_keys)
        for (profile_id, name, new_types, clients, keep_keys), names in allowed.items()
    )


def _emitters(connection: Connection, removed: bool) -> Iterator[EmitterSpec]:
    rows = connection.execute(_EMITTERS, {"removed": removed})
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


# Statements are put together once. That takes longer than to carry them out, and each broker reads at its start.


def _is_own(service_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Select what belongs to a service that the bus itself provides."""
    return exists().where(emitting_service.c.service_id == service_id)


_is_of_bus = exists().where(emitter.c.profile_id == emitter_profile.c.id, emitter.c.kind != "program")
"""Selects the profiles of emitters that the bus itself has."""

_of_clients = emitter_profile.alias("of_clients")
_NEWEST_WITH_NODES = (
    select(graph.c.event_type_id, graph.c.id)
    .join(
        newest_graphs,
        and_(newest_graphs.c.event_type_id == graph.c.event_type_id, newest_graphs.c.number == graph.c.number),
    )
    .where(exists().where(node_table.c.graph_id == graph.c.id))
)
_TYPE_NAMES = select(event_type.c.id, event_type.c.name)
_EVENT_TYPES = select(*without_end(event_type)).where(is_chosen(event_type)).order_by(event_type.c.name)
_SERVICES = (
    select(*without_end(service))
    .where(is_chosen(service), ~_is_own(service.c.id), service.c.kind != "reader")
    .order_by(service.c.name)
)
_TYPES_OF_READERS = select(reader_event_type.c.service_id, event_type.c.name).join(
    event_type, event_type.c.id == reader_event_type.c.event_type_id
)
_READERS = (
    select(service.c.name, reader, lag_limit.c.envelopes, lag_limit.c.seconds, lag_limit.c.when_behind)
    .join(reader, reader.c.service_id == service.c.id)
    .outerjoin(lag_limit, and_(lag_limit.c.kind == "reader", lag_limit.c.subject_id == service.c.id))
    .where(is_chosen(service), ~is_of_bot(service.c.name), ~is_of_subscription(service.c.id))
    .order_by(service.c.name)
)
_ROLES = (
    select(
        *(role.c.login, role.c.ordered, role.c.absent_minutes, role.c.parked_minutes, role.c.instances),
        *(role.c.standby, role.c.public_keys, service.c.name),
        *(lag_limit.c.envelopes, lag_limit.c.seconds, lag_limit.c.when_behind),
    )
    .join(service, service.c.id == role.c.service_id)
    .outerjoin(lag_limit, and_(lag_limit.c.kind == "role", lag_limit.c.subject_id == role.c.id))
    .where(is_chosen(role), ~_is_own(role.c.service_id))
    .order_by(role.c.login)
)
_PROFILES = (
    select(
        *(emitter_profile.c.id, emitter_profile.c.name, emitter_profile.c.new_types),
        *(_of_clients.c.name, emitter_profile.c.keep_keys, event_type.c.name),
    )
    .select_from(emitter_profile)
    .outerjoin(_of_clients, _of_clients.c.id == emitter_profile.c.clients_id)
    .outerjoin(profile_event_type, profile_event_type.c.profile_id == emitter_profile.c.id)
    .outerjoin(event_type, event_type.c.id == profile_event_type.c.event_type_id)
    .where(is_chosen(emitter_profile), ~_is_of_bus)
    .order_by(emitter_profile.c.name)
)
_EMITTERS = (
    select(emitter.c.login, emitter_profile.c.name, emitter.c.id, emitter.c.public_keys)
    .join(emitter_profile, emitter_profile.c.id == emitter.c.profile_id)
    .where(is_chosen(emitter), emitter.c.kind == "program")
    .order_by(emitter.c.login)
)
