"""The catalog: the configuration in use, as front and back read it; removed rows are left out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Literal, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, func, select

from xbus.broker.journal.database.rows import columns_for, grouped, value_of
from xbus.broker.journal.log.bots import BotEntry, RunnerEntry, read_bots, read_runners
from xbus.broker.journal.log.emitters import EmitterEntry, read_emitters
from xbus.broker.journal.log.sessions import read_keys
from xbus.broker.journal.writes import GroupType, PauseEntry, PauseKind, Pauses, longest, pause_of_role
from xbus.graph import Graph, Node, graph_of
from xbus.model import (
    bot,
    configuration,
    edge,
    emitter,
    emitting_service,
    event_type,
    graph,
    node,
    pause,
    role,
    service,
)
from xbus.model.base import UNREADABLE

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class EventType:
    """An event type and the version of its graph that events started now will take.

    Args:
        bad_items: what is parked where a recipient refuses items by their indices: the whole envelope, or those alone.
        max_isolated: with more items than this refused in one event the whole envelope is parked all the same.
        first_name: the name with which it was made; empty if it was never renamed.
        compress: whether its segments are stored compressed.
        pause: why no event of it may begin; None while it may.
        publisher_id: the emitter that made it, which needs no leave of its profile; None for a type that none made.
        is_topic: whether a program made it, so that one emitter alone publishes it.
    """

    id: int
    name: str
    immediate_reply: bool
    graph_id: int
    bad_items: Literal["envelope", "isolate"]
    max_isolated: int
    first_name: str = ""
    compress: bool = False
    pause: PauseEntry | None = None
    publisher_id: int | None = None
    is_topic: bool = False

    @property
    def hashed_name(self) -> str:
        """The name that hashes of envelopes hold."""
        return self.first_name or self.name

    @cached_property
    def grouped(self) -> GroupType:
        """The type as envelopes of a group have it."""
        return GroupType(self.id, self.name, self.hashed_name, self.graph_id, self.compress)


@dataclass(frozen=True)
class RetrySettings:
    """The retry settings of a service; None means that of the back's configuration.

    Args:
        attempts: how often an envelope is tried before it is parked.
        first_delay: seconds before the second attempt; doubled each time.
        longest_delay: the most that a delay grows to, in seconds.
        jitter: by which part a delay is made longer or shorter at random, 0 to 1.
    """

    attempts: int | None = None
    first_delay: float | None = None
    longest_delay: float | None = None
    jitter: float | None = None


@dataclass(frozen=True)
class RoleEntry:
    """A role, the key of the service that it provides, and what that wants.

    Args:
        service: the key of its service, see ``model.service``; ``service_name`` is the present name.
        worker: whether the service is a worker or a consumer.
        ordered: whether a consumer gets one envelope at a time, those of one ordering key in position order.
        own: whether the failures of a consumer are its own matter, and those of others not its.
        retry: how a consumer wants failed envelopes to be tried again.
        detached: whether an operator took it off the bus; it may not register then.
        absent_minutes: how long it may be away while something waits for it before health tells of it; infinite for
            never, None for what the configuration says, as below.
        parked_minutes: how long something may be parked for it before health tells of it.
        instances: so many programs may serve it side by side.
        standby: whether further programs wait until one of those is lost.
        pause: why nothing new begins with it: it is paused, or its service is; None while neither is.
        keys: the public keys by which it may log in over encrypted connections.
        emits: the id of the event type as which the bus itself emits what comes to it; None for a role of programs.
    """

    id: int
    login: str
    service: str
    worker: bool
    ordered: bool = False
    own: bool = False
    retry: RetrySettings = RetrySettings()
    detached: bool = False
    absent_minutes: float | None = None
    parked_minutes: float | None = None
    service_name: str = ""
    instances: int = 1
    standby: bool = False
    pause: PauseEntry | None = None
    keys: frozenset[str] = frozenset()
    emits: int | None = None

    @property
    def is_shared(self) -> bool:
        """True for a role at which several programs may be registered at the same time."""
        return self.instances > 1 or self.standby

    @property
    def shown_service(self) -> str:
        """The present name of its service, for people."""
        return self.service_name or self.service

    def is_served_like(self, other: "RoleEntry") -> bool:
        """Check whether the recipient of the former role may go on: only these fields need a new one."""
        served = attrgetter("service", "worker", "ordered", "detached")
        return bool(served(self) == served(other))


@dataclass(frozen=True)
class Catalog:
    """One version of the configuration: event types by name, emitters and roles by id.

    Args:
        isolation: by an event type's name, how many refused items of one event are parked alone; of a type that is not
            in here the whole envelope is parked. Types that were removed are in here too, as events of them may still
            be on their way.
        reader_roles: the logins of programs of readers, by their ids; ``roles`` has the other roles.
        former_types: names of event types before they were renamed while this program ran, with their ids.
        service_names: the name of each service by its key.
        pauses: all pauses in force, by kind and id.
        graph_edits: how often graphs were edited by SQL: what was read of them before may be wrong.
        runners: the roles whose programs run bots or call subscribers, by id; ``roles`` has the others.
        bots: by id.
        bus: a random id of the bus; empty before the first look.
    """

    version: int
    event_types: Mapping[str, EventType]
    emitters: Mapping[int, EmitterEntry]
    roles: Mapping[int, RoleEntry]
    isolation: Mapping[str, int] = field(default_factory=dict)
    reader_roles: Mapping[int, RoleEntry] = field(default_factory=dict)
    former_types: Mapping[str, int] = field(default_factory=dict)
    service_names: Mapping[str, str] = field(default_factory=dict)
    pauses: Pauses = field(default_factory=dict)
    graph_edits: int = 0
    runners: Mapping[int, RunnerEntry] = field(default_factory=dict)
    bots: Mapping[int, BotEntry] = field(default_factory=dict)
    bus: str = ""

    def event_type(self, name: str) -> EventType | None:
        """Find an event type, also by a name that it had while this program ran: an event may have begun with that."""
        if (found := self.event_types.get(name)) is not None:
            return found
        type_id = self.former_types.get(name)
        return next((each for each in self.event_types.values() if each.id == type_id), None)

    def after(self, former: "Catalog", left_out: Mapping[str, frozenset[int]]) -> "Catalog":
        """Follow the catalog that was in force until now: remember names of its event types.

        Args:
            former: the catalog until now.
            left_out: ids of rows that make no sense now, by table. They stay as they were.
        """
        after = self._with_names_of(former)
        return after._with_entries_of(former, left_out) if left_out else after

    def _with_entries_of(self, former: "Catalog", left_out: Mapping[str, frozenset[int]]) -> "Catalog":
        types = left_out[event_type.name]
        kept = {name: each for name, each in former.event_types.items() if each.id in types}
        kept = {name: each for name, each in kept.items() if name not in self.event_types}
        isolation = {name: former.isolation[name] for name in kept if name in former.isolation}
        return replace(
            self,
            event_types={**kept, **self.event_types},
            isolation={**isolation, **self.isolation},
            emitters=_with_former(
                {key: each.also_sending(kept, former.emitters.get(key)) for key, each in self.emitters.items()},
                former.emitters,
                left_out[emitter.name],
            ),
            roles=_with_former(self.roles, former.roles, left_out[role.name]),
            reader_roles=_with_former(self.reader_roles, former.reader_roles, left_out[role.name]),
            runners=_with_former(self.runners, former.runners, left_out[role.name]),
            bots=_with_former(self.bots, former.bots, left_out[bot.name]),
        )

    def _with_names_of(self, former: "Catalog") -> "Catalog":
        present = {each.id: each.name for each in self.event_types.values()}
        known = {each.name: each.id for each in former.event_types.values()}
        renamed = {name: type_id for name, type_id in known.items() if present.get(type_id, name) != name}
        return replace(self, former_types={**former.former_types, **renamed})

    def service_name(self, key: str) -> str:
        """Give the present name of a service by its key."""
        return self.service_names.get(key, key)

    def pause_of_service(self, key: str) -> PauseEntry | None:
        """Give the pause that ends last where all roles of a service are paused; None where one is not."""
        pauses = [role.pause for role in self.roles.values() if role.service == key]
        return longest(pauses) if None not in pauses else None

    @property
    def expects_replies(self) -> bool:
        """True if any event type has immediate replies."""
        return any(event_type.immediate_reply for event_type in self.event_types.values())


def _with_former(present: Mapping[int, Entry], former: Mapping[int, Entry], ids: Collection[int]) -> dict[int, Entry]:
    return {**{key: entry for key, entry in former.items() if key in ids}, **present}


def read_version(connection: Connection) -> int:
    """Read the version of the configuration; cheap, for those who wait for a change."""
    version: int = connection.execute(select(configuration.c.version)).scalar_one()
    return version


def read_catalog(connection: Connection) -> Catalog:
    """Read the whole configuration that is in use.

    The version is read first: where a change slips in between, the next look at the version finds another one.
    """
    version = read_version(connection)
    pauses = read_pauses(connection)
    graph_edits, bus = connection.execute(select(configuration.c.graph_edits, configuration.c.bus)).one()
    return Catalog(
        version=version,
        event_types={entry.name: entry for entry in _event_types(connection, pauses)},
        emitters={entry.id: entry for entry in read_emitters(connection, pauses)},
        roles={entry.id: entry for entry in _roles(connection, pauses, of_readers=False)},
        reader_roles={entry.id: entry for entry in _roles(connection, pauses, of_readers=True)},
        isolation=_isolation(connection),
        service_names=read_service_names(connection),
        pauses=pauses,
        graph_edits=graph_edits,
        runners={entry.id: entry for entry in read_runners(connection, pauses)},
        bots={entry.id: entry for entry in read_bots(connection, pauses)},
        bus=bus,
    )


PAUSED_TABLES: Mapping[PauseKind, Table] = {
    PauseKind.ROLE: role,
    PauseKind.SERVICE: service,
    PauseKind.TYPE: event_type,
    PauseKind.EMITTER: emitter,
    PauseKind.BOT: bot,
}


def read_pauses(connection: Connection) -> Pauses:
    """Read the pauses of all that is in use, by kind and id; the oldest first.

    One whose end nobody can read lasts until a person resumes it: health tells of its row.
    """
    found: dict[tuple[PauseKind, int], PauseEntry] = {}
    for row in connection.execute(select(pause).order_by(pause.c.since)).all():
        kind = PauseKind(row.kind)
        table = PAUSED_TABLES[kind]
        called = select(name_column(table)).where(table.c.id == row.subject_id, table.c.removed_at.is_(None))
        name = connection.execute(called).scalar_one_or_none()
        if name is not None:
            subject, until = (kind, row.subject_id), None if row.until == UNREADABLE else row.until
            found[subject] = PauseEntry(*subject, name, row.reason, row.paused_by, row.since, until)
    return found


def name_column(table: Table) -> ColumnElement[str]:
    """Give the column by which people call a row."""
    column: ColumnElement[str] = table.c.login if "login" in table.c else table.c.name
    return column


def read_service_names(connection: Connection) -> dict[str, str]:
    """Read the present name of each service by its key."""
    return {row.key: row.name for row in connection.execute(_SERVICE_NAMES)}


_SERVICE_NAMES = select(service.c.key, service.c.name)


def read_graph(connection: Connection, graph_id: int) -> Graph:
    """Read the version ``graph_id`` of an event type's graph; nodes and children as they were declared.

    Its nodes name services by their keys, which never change, so that it may be kept.
    """
    edges = (
        select(edge.c.parent_id, node.c.name)
        .join(node, node.c.id == edge.c.child_id)
        .where(node.c.graph_id == graph_id)
        .order_by(node.c.id)
    )
    children = grouped(connection.execute(edges))
    rows = connection.execute(
        select(node.c.id, node.c.name, service.c.key, service.c.kind, emitting_service.c.event_type_id, node.c.aside)
        .outerjoin(service, service.c.id == node.c.service_id)
        .outerjoin(emitting_service, emitting_service.c.service_id == service.c.id)
        .where(node.c.graph_id == graph_id)
        .order_by(node.c.id)
    )
    return graph_of(
        Node(name, service_key or "", kind == "worker", tuple(children[node_id]), emits, aside)
        for node_id, name, service_key, kind, emits, aside in rows
    )


newest_graphs = (
    select(graph.c.event_type_id, func.max(graph.c.number).label("number")).group_by(graph.c.event_type_id).subquery()
)
"""The number of the newest version of each event type's graph."""

_EVENT_TYPES = (
    select(
        *(event_type.c[name] for name in ("id", "name", "immediate_reply", "bad_items", "max_isolated")),
        *(event_type.c.publisher_id, event_type.c.is_topic, graph.c.id.label("graph_id")),
        func.coalesce(func.nullif(event_type.c.first_name, event_type.c.name), "").label("first_name"),
        (event_type.c.compress != "none").label("compress"),
    )
    .join(newest_graphs, newest_graphs.c.event_type_id == event_type.c.id)
    .join(graph, (graph.c.event_type_id == event_type.c.id) & (graph.c.number == newest_graphs.c.number))
    .where(event_type.c.removed_at.is_(None))
    .order_by(event_type.c.name)
)


def _event_types(connection: Connection, pauses: Pauses) -> list[EventType]:
    rows = connection.execute(_EVENT_TYPES)
    return [EventType(**row._mapping, pause=pauses.get((PauseKind.TYPE, row.id))) for row in rows]


def _isolation(connection: Connection) -> dict[str, int]:
    isolating = select(event_type.c.name, event_type.c.max_isolated).where(event_type.c.bad_items == "isolate")
    return {row.name: row.max_isolated for row in connection.execute(isolating)}


_ROLES = (
    select(
        *(*columns_for(RoleEntry, role), role.c.service_id, role.c.detached_at, role.c.public_keys),
        *(*columns_for(RetrySettings, service), service.c.key, service.c.name, service.c.kind, service.c.failures),
        emitting_service.c.event_type_id.label("emits"),
    )
    .join(service, service.c.id == role.c.service_id)
    .outerjoin(emitting_service, emitting_service.c.service_id == service.c.id)
    .where(role.c.removed_at.is_(None), service.c.removed_at.is_(None))
    .order_by(role.c.login)
)
_ROLES_OF_READERS = _ROLES.where(service.c.kind == "reader")
_ROLES_OF_NODES = _ROLES.where(service.c.kind.in_(("worker", "consumer")))


def _roles(connection: Connection, pauses: Pauses, *, of_readers: bool) -> list[RoleEntry]:
    rows = connection.execute(_ROLES_OF_READERS if of_readers else _ROLES_OF_NODES)
    return [
        value_of(
            RoleEntry,
            row,
            service=row.key,
            worker=row.kind == "worker",
            own=row.failures == "own",
            retry=value_of(RetrySettings, row),
            detached=row.detached_at is not None,
            service_name=row.name,
            keys=frozenset(read_keys(row.public_keys)),
            pause=pause_of_role(pauses, row.id, row.service_id, row.emits),
        )
        for row in rows
    ]
