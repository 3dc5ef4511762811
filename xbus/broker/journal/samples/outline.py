"""Reads the outline of the bus that a drawing needs: who sends which types, and where these go."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import grouped
from xbus.broker.journal.log.catalog import read_version
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import find_waiting_since


class ServiceOutline(NamedTuple):
    """A service in use."""

    name: str
    is_worker: bool


class RoleOfService(NamedTuple):
    """A role in use, and the id of its service."""

    login: str
    service_id: int


Ways = Mapping[int | None, Collection[int]]
"""The way of a type: the ids of the services behind each service; None stands for its start."""


@dataclass(frozen=True, slots=True)
class BusOutline:
    """The entries in use by their ids, in one version of the configuration.

    Args:
        emitters: their logins.
        own_emitters: those of them by which the bus itself writes, and for what: ``node`` or ``bot``.
        types: their names.
        sends: the types that each emitter may send.
        ways: the way of each type, by its present graph.
    """

    version: int
    emitters: Mapping[int, str]
    types: Mapping[int, str]
    services: Mapping[int, ServiceOutline]
    roles: Mapping[int, RoleOfService]
    sends: Mapping[int, Collection[int]]
    ways: Mapping[int, Ways]
    own_emitters: Mapping[int, str] = field(default_factory=dict)


def read_bus(connection: sa.Connection) -> BusOutline:
    """Read the present configuration; it costs a read of some small tables."""
    emitter, service, role = model.emitter.c, model.service.c, model.role.c
    emitters = connection.execute(
        sa.select(emitter.id, emitter.login, emitter.profile_id, emitter.kind).where(emitter.removed_at.is_(None))
    ).all()
    of_profile = grouped(connection.execute(_ALLOWED))
    in_use = sa.select(model.event_type.c.id, model.event_type.c.name).where(model.event_type.c.removed_at.is_(None))
    # No event is led to a reader: it has no place in the graph.
    of_graph = (service.removed_at.is_(None), service.kind != "reader")
    services = sa.select(service.id, service.name, service.kind).where(*of_graph)
    roles = (
        sa.select(role.id, role.login, role.service_id)
        .join(model.service, service.id == role.service_id)
        .where(role.removed_at.is_(None), service.kind != "reader")
    )
    return BusOutline(
        version=read_version(connection),
        emitters={row.id: row.login for row in emitters},
        types=dict(connection.execute(in_use).all()),
        services={
            service_id: ServiceOutline(name, kind == "worker")
            for service_id, name, kind in connection.execute(services)
        },
        roles={role_id: RoleOfService(login, service_id) for role_id, login, service_id in connection.execute(roles)},
        sends={row.id: of_profile[row.profile_id] for row in emitters},
        ways=_read_ways(connection),
        own_emitters={row.id: row.kind for row in emitters if row.kind != "program"},
    )


def _read_ways(connection: sa.Connection) -> dict[int, Ways]:
    nodes = {node_id: (type_id, service_id) for node_id, type_id, service_id in connection.execute(_NODES)}
    ways: defaultdict[int, defaultdict[int | None, set[int]]] = defaultdict(lambda: defaultdict(set))
    behind = set()
    for parent_id, child_id in connection.execute(_EDGES):
        behind.add(child_id)
        type_id, service_id = nodes[parent_id]
        ways[type_id][service_id].add(nodes[child_id][1])
    for node_id, (type_id, service_id) in nodes.items():
        if node_id not in behind:
            ways[type_id][None].add(service_id)
    return {**ways}


_ALLOWED = (
    sa.select(model.profile_event_type.c.profile_id, model.profile_event_type.c.event_type_id)
    .join(model.event_type, model.event_type.c.id == model.profile_event_type.c.event_type_id)
    .where(model.event_type.c.removed_at.is_(None))
)
_LAST = sa.select(sa.func.max(model.graph.c.id).label("id")).group_by(model.graph.c.event_type_id).subquery()
_NODES = (
    sa.select(model.node.c.id, model.graph.c.event_type_id, model.node.c.service_id)
    .join(model.graph, model.graph.c.id == model.node.c.graph_id)
    .join(_LAST, _LAST.c.id == model.graph.c.id)
)
_EDGES = (
    sa.select(model.edge.c.parent_id, model.edge.c.child_id)
    .join(model.node, model.node.c.id == model.edge.c.parent_id)
    .join(_LAST, _LAST.c.id == model.node.c.graph_id)
)


# -- readers -----------------------------------------------------------------------------------------------------------
# Reads how far readers are, as cheaply as a sample must be.


@dataclass(frozen=True, slots=True)
class ReaderFigures:
    """A reader in use.

    Args:
        service_id: see ``model.reader``.
        types: the ids of the event types that it reads.
        programs: how many programs have ranges of it.
        waits_since: when the first event was sealed that it has not read; None where it has read all.
        skipped: how many envelopes retention removed before it read them.
    """

    service_id: int
    name: str
    types: Collection[int]
    programs: int
    waits_since: datetime | None
    skipped: int


def read_reader_figures(connection: sa.Connection) -> list[ReaderFigures]:
    """Read the readers in use, by name. Each costs one look into the table of contents, at any lag."""
    found = []
    ranges = read_ranges(connection)
    for entry in read_readers(connection):
        own = [each for each in ranges if each.service_id == entry.id]
        since = find_waiting_since(connection, entry, min(each.place for each in own))
        programs = len({each.owner for each in own} - {None})
        skipped = max(each.skipped for each in own)
        found.append(ReaderFigures(entry.id, entry.name, entry.event_types, programs, since, skipped))
    return found
