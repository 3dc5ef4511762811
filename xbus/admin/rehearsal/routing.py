"""Says where a bus leads the events of a type, and who may send them; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from xbus.broker.journal.configuration import BusSpec, EmitterSpec, EventTypeSpec, ProfileSpec
from xbus.broker.journal.configuration.chaining import expanded
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
