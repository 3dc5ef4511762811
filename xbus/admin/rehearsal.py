"""Leads the last events of each type through a bus that is not applied yet, and compares who gets them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from xbus.broker.journal.configuration import BusSpec, EmitterSpec, EventTypeSpec, NodeSpec, Plan, ProfileSpec, Section
from xbus.broker.journal.configuration.chaining import emitting_nodes, expanded
from xbus.broker.journal.configuration.entries import BotSpec
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.operations.envelopes.search import SentEvents, read_recent
from xbus.graph import Graph, Node

Stop: TypeAlias = tuple[str, str | None]
"""A service to which a graph leads, with the login of one of its roles or None."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way of events to a stop.

    Args:
        kind: ``worker`` or ``consumer``. A worker's event goes to one of the roles of its service.
        nodes: the names of the service's nodes, sorted.
        through: the worker services before them, sorted.
    """

    kind: str
    nodes: tuple[str, ...]
    through: tuple[str, ...]


def ways(bus: BusSpec, type_name: str) -> Mapping[Stop, Way]:
    """Find all stops of the events of a type; none for a type that the bus lacks."""
    event_type = bus.event_types.get(type_name)
    if event_type is None:
        return {}
    graph = _graph(bus, event_type)
    found: dict[Stop, Way] = {}
    for service in sorted({node.service for node in graph.nodes.values()}):
        nodes = graph.nodes_of(service)
        before = {name for node in nodes for name in _before(graph, node)}
        through = tuple(sorted({graph.nodes[name].service for name in before}))
        way = Way(bus.services[service].kind, tuple(sorted(nodes)), through)
        logins = sorted(role.login for role in bus.roles.values() if role.service == service)
        stops: list[Stop] = [(service, login) for login in logins] or [(service, None)]
        found |= dict.fromkeys(stops, way)
    return found


def with_own(bus: BusSpec) -> BusSpec:
    """Give a bus with the entries that it has of its own: for nodes that emit, and as the emitters of bots."""
    whole = expanded(bus)
    bots = bus.bots.values()
    return replace(
        whole,
        profiles={**whole.profiles, **{bot.emitter: ProfileSpec(bot.emitter, bot.emits) for bot in bots}},
        emitters={**whole.emitters, **{bot.emitter: EmitterSpec(bot.emitter, bot.emitter) for bot in bots}},
    )


def may_send(bus: BusSpec, emitter: str, type_name: str) -> bool:
    """Check whether an emitter may send events of a type."""
    found = bus.emitters.get(emitter)
    profile = None if found is None else bus.profiles.get(found.profile)
    return profile is not None and type_name in bus.event_types and type_name in profile.event_types


def _graph(bus: BusSpec, event_type: EventTypeSpec) -> Graph:
    return Graph(
        {
            node.name: Node(node.name, node.service, bus.services[node.service].kind == "worker", node.to)
            for node in event_type.nodes.values()
        }
    )


def _before(graph: Graph, name: str) -> set[str]:
    """Collect the nodes before a node, however far."""
    seen: set[str] = set()
    ahead = [*graph.parents(name)]
    while ahead:
        parent = ahead.pop()
        if parent not in seen:
            seen.add(parent)
            ahead.extend(graph.parents(parent))
    return seen


MOST_EXAMPLES = 3
"""Envelopes that are named for each difference."""


@dataclass(slots=True)
class Tally:
    """The events of a type on both buses.

    Args:
        now: how many arrive on the bus as it is.
        then: how many arrive on the bus as it would be.
        examples: the newest envelopes for which that differs.
    """

    now: int = 0
    then: int = 0
    examples: list[UUID] = field(default_factory=list)

    def add(self, sent: SentEvents, *, now: bool, then: bool, differs: bool) -> None:
        """Count the events of an envelope."""
        self.now += sent.events if now else 0
        self.then += sent.events if then else 0
        if differs and len(self.examples) < MOST_EXAMPLES:
            self.examples.append(sent.envelope_id)


@dataclass(frozen=True, slots=True)
class Route:
    """A role, or a service without one, and the events of a type that it would have got.

    Args:
        now: the way there on the bus as it is; None for none, and so is ``then``.
    """

    service: str
    role: str | None
    now: Way | None
    then: Way | None
    tally: Tally

    @property
    def kind(self) -> str:
        """Say whether the service is a ``worker`` or a ``consumer``."""
        way = self.then or self.now
        return "" if way is None else way.kind

    @property
    def is_changed(self) -> bool:
        """True if the role gets other events, or gets them on another way."""
        return self.tally.now != self.tally.then or self.now != self.then


@dataclass(frozen=True, slots=True)
class TypeComparison:
    """The last events of a type on both buses.

    Args:
        type: its name on the bus as it would be, or the present one if it would go.
        events: how many events were looked at.
        since: when the oldest of them was sealed; None without any.
        routes: the roles, consumers first.
        senders: how many events of each emitter may be sent, for emitters for which that differs.
    """

    type: str
    events: int
    since: datetime | None
    routes: tuple[Route, ...]
    senders: tuple[tuple[str, Tally], ...]

    @property
    def is_changed(self) -> bool:
        """True if anything differs."""
        return bool(self.senders) or any(route.is_changed for route in self.routes)

    @property
    def examples(self) -> list[UUID]:
        """All envelopes that it names."""
        tallies = [*(route.tally for route in self.routes), *(tally for _, tally in self.senders)]
        return [envelope_id for tally in tallies for envelope_id in tally.examples]


def compare(type_name: str, before: BusSpec, after: BusSpec, sent: Iterable[SentEvents]) -> TypeComparison:
    """Compare where two buses lead events of a type.

    Args:
        before: the bus as it is, by the names of ``after``.
        after: the bus as it would be.
        sent: the events, newest first; the memory that this takes does not grow with them.
    """
    now, then = ways(before, type_name), ways(after, type_name)
    stops: dict[Stop, Tally] = {stop: Tally() for stop in {**now, **then}}
    senders: defaultdict[str, Tally] = defaultdict(Tally)
    allowed: dict[str, tuple[bool, bool]] = {}
    events, since = 0, None
    for each in sent:
        events, since = events + each.events, each.sealed_at
        may = allowed.get(each.emitter)
        if may is None:
            may = may_send(before, each.emitter, type_name), may_send(after, each.emitter, type_name)
            allowed[each.emitter] = may
        if may[0] != may[1]:
            senders[each.emitter].add(each, now=may[0], then=may[1], differs=True)
        for stop, tally in stops.items():
            arrives = may[0] and stop in now, may[1] and stop in then
            differs = arrives[0] != arrives[1] or (all(arrives) and now[stop] != then[stop])
            tally.add(each, now=arrives[0], then=arrives[1], differs=differs)
    routes = [Route(*stop, now.get(stop), then.get(stop), tally) for stop, tally in stops.items()]
    routes.sort(key=lambda route: (route.kind, route.service, route.role or ""))
    return TypeComparison(type_name, events, since, tuple(routes), tuple(sorted(senders.items())))


def rehearse(connection: Connection, plan: Plan, last: int, tell: Callable[[int], None]) -> Iterator[TypeComparison]:
    """Compare both buses for each event type of either, by name.

    Args:
        connection: of the journal, without a transaction; each type is read in one, when it is asked for.
        plan: of the change.
        last: so many events of each type are looked at.
        tell: gets the numbers of events, ``last`` for each of :func:`types_of`, however few the type has.
    """
    with connection.begin():
        roles = read_catalog(connection).roles.values()
    detached = {plan.name_of(Section.ROLE, role.login) for role in roles if role.detached}
    before, after = (with_own(_without(bus, detached)) for bus in (plan.before, plan.after))
    own = own_logins(plan)
    for name in types_of(plan):
        with connection.begin():
            sent = counted(read_recent(connection, plan.stored_name(Section.EVENT_TYPE, name), last), last, tell)
            yield compare(name, before, after, (_renamed(plan, own, each) for each in sent))


def types_of(plan: Plan) -> list[str]:
    """List the event types of both buses by name."""
    return sorted({*plan.before.event_types, *plan.after.event_types})


def counted(sent: Iterable[SentEvents], last: int, tell: Callable[[int], None]) -> Iterator[SentEvents]:
    """Hand events on, and tell how many there were, and at the end how many the type lacks."""
    for each in sent:
        yield each
        last -= each.events
        tell(each.events)
    tell(max(0, last))


def own_logins(plan: Plan) -> Mapping[str, str]:
    """Map the logins by which the bus itself writes now, for nodes and bots, to those after the plan."""
    logins: dict[str, str] = {}
    for event_type in plan.before.event_types.values():
        former = replace(
            event_type,
            name=plan.stored_name(Section.EVENT_TYPE, event_type.name),
            nodes={node.name: _with_stored_types(plan, node) for node in event_type.nodes.values()},
        )
        owners = zip(emitting_nodes(former), emitting_nodes(event_type), strict=True)
        logins |= {before.owner: after.owner for before, after in owners}
    for bot in plan.before.bots.values():
        logins[BotSpec(plan.stored_name(Section.BOT, bot.name)).emitter] = bot.emitter
    return logins


def _with_stored_types(plan: Plan, node: NodeSpec) -> NodeSpec:
    return replace(node, emits=tuple(plan.stored_name(Section.EVENT_TYPE, name) for name in node.emits))


def _renamed(plan: Plan, own: Mapping[str, str], sent: SentEvents) -> SentEvents:
    return replace(sent, emitter=own.get(sent.emitter) or plan.name_of(Section.EMITTER, sent.emitter))


def _without(bus: BusSpec, roles: Collection[str]) -> BusSpec:
    return replace(bus, roles={login: role for login, role in bus.roles.items() if login not in roles})
