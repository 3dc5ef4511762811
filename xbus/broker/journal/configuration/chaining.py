"""Nodes that emit, in the configuration: the entries that the bus has of its own for them, and their rules; pure.

Administrators name only the node. For each of these nodes there is a service that the bus itself provides, a role, an
emitter and its profile. All four are called by event type and node, as ``orders/enriched``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from xbus import graph as graphs
from xbus.broker.journal.configuration.entries import (
    BusSpec,
    ConfigurationProblem,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    Place,
    ProfileSpec,
    RoleSpec,
    Section,
    ServiceSpec,
)
from xbus.broker.journal.configuration.names import LONGEST_NAME

SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class EmittingNode:
    """A node of a stored graph by which the bus emits.

    Args:
        name: of the node.
        owner: what its service, its role, its emitter and its profile are called.
        emits: the name of the event type as which it emits.
        aside: whether it gets only items whose worker names that type.
    """

    name: str
    owner: str
    emits: str
    aside: bool


def owner_name(type_name: str, node: str) -> str:
    """Give the name of all that the bus has of its own for a node."""
    return f"{type_name}{SEPARATOR}{node}"


def emitting_nodes(event_type: EventTypeSpec) -> Iterator[EmittingNode]:
    """Iterate over the nodes by which the bus emits: those without a service, and one for each type that a worker's
    node lists.

    A worker's node that lists one type and leads nowhere else sends all to that; what a worker names by itself comes
    aside.
    """
    for node in event_type.nodes.values():
        for emits in node.emits:
            name = f"{node.name}{SEPARATOR}{emits}" if node.service else node.name
            aside = bool(node.service) and (bool(node.to) or len(node.emits) > 1)
            yield EmittingNode(name, owner_name(event_type.name, name), emits, aside)


def stored_nodes(event_type: EventTypeSpec) -> Mapping[str, NodeSpec]:
    """Give the nodes of a graph as it is stored, each with its service."""
    nodes = {
        node.name: replace(node, to=(*node.to, *(f"{node.name}{SEPARATOR}{emits}" for emits in node.emits)), emits=())
        for node in event_type.nodes.values()
        if node.service
    }
    own = {node.name: NodeSpec(node.name, node.owner, (), (node.emits,)) for node in emitting_nodes(event_type)}
    return {**nodes, **own}


def expanded(bus: BusSpec) -> BusSpec:
    """Give a bus with the entries that it has of its own."""
    own = {node.owner: node for each in bus.event_types.values() for node in emitting_nodes(each)}
    return replace(
        bus,
        event_types={name: replace(each, nodes=stored_nodes(each)) for name, each in bus.event_types.items()},
        services={**bus.services, **{name: ServiceSpec(name, "consumer") for name in own}},
        roles={**bus.roles, **{name: RoleSpec(name, name) for name in own}},
        profiles={**bus.profiles, **{name: ProfileSpec(name, frozenset({node.emits})) for name, node in own.items()}},
        emitters={**bus.emitters, **{name: EmitterSpec(name, name) for name in own}},
    )


def find_chain_problems(in_use: BusSpec, ever: BusSpec, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Iterate over every reason why the nodes of ``bus`` can't emit as they should.

    Args:
        in_use: the present entries.
        ever: these and the former ones.
    """
    whole = in_use.with_all(bus)
    for event_type in bus.event_types.values():
        for node in event_type.nodes.values():
            for sentence in _node_problems(whole, node):
                yield ConfigurationProblem(_place(event_type, node.name), sentence)
        yield from _own_problems(ever, whole, event_type)
    yield from _later_problems(whole, bus)
    yield from _circles(whole, bus)


def _later_problems(whole: BusSpec, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find entries of ``bus`` that nodes of other event types forbid, which are on the bus already."""
    for event_type in whole.event_types.values():
        if event_type.name in bus.event_types:
            continue
        for node in emitting_nodes(event_type):
            emitted = bus.event_types.get(node.emits)
            if emitted is not None and emitted.immediate_reply:
                about = f'node "{node.name}" of "{event_type.name}" emits it'
                yield ConfigurationProblem(
                    (Section.EVENT_TYPE, emitted.name, "immediate_reply"), f"{_awaited(emitted.name)}: {about}"
                )
            for section in _taken(bus, node):
                sentence = f'the bus needs the name "{node.owner}" for a node that emits'
                yield ConfigurationProblem((section, node.owner), sentence)


def _awaited(name: str) -> str:
    return f'event type "{name}" has immediate replies, and nobody would wait for one'


def _place(event_type: EventTypeSpec, node: str) -> Place:
    return (Section.EVENT_TYPE, event_type.name, "node", node, "emits")


def _node_problems(whole: BusSpec, node: NodeSpec) -> Iterator[str]:
    if not node.service and not node.emits:
        yield "a node has a service, or emits"
    if not node.service and len(node.emits) > 1:
        yield f"a node without a service emits one type, and this one {len(node.emits)}: take a node for each"
    if not node.service and node.emits and node.to:
        yield "a node that emits ends the line: events of its type go on by the graph of that type"
    if not node.service and SEPARATOR in node.name:
        yield f'the name of a node that emits has no "{SEPARATOR}"'
    service = whole.services.get(node.service)
    if node.emits and service is not None and service.kind == "consumer":
        yield f'service "{node.service}" is a consumer, which answers nothing that could be emitted'
    for name in node.emits:
        emitted = whole.event_types.get(name)
        if emitted is not None and emitted.immediate_reply:
            yield _awaited(name)


def _own_problems(ever: BusSpec, whole: BusSpec, event_type: EventTypeSpec) -> Iterator[ConfigurationProblem]:
    """Find faults of what the bus would have of its own for the nodes of a type."""
    former = ever.event_types.get(event_type.name)
    emitted = {} if former is None else {node.name: node.emits for node in emitting_nodes(former)}
    for node in emitting_nodes(event_type):
        place = _place(event_type, node.name.partition(SEPARATOR)[0])
        if emitted.get(node.name, node.emits) != node.emits:
            sentence = f'node "{node.name}" emits "{emitted[node.name]}" for good: take another name for a node'
            yield ConfigurationProblem(place, f'{sentence} that emits "{node.emits}"')
        if len(node.owner) > LONGEST_NAME:
            yield ConfigurationProblem(place, f'"{node.owner}" is longer than {LONGEST_NAME} characters')
        for taken in _taken(whole, node):
            yield ConfigurationProblem(place, f'{taken} "{node.owner}" has the name that the bus needs for this node')


def _taken(whole: BusSpec, node: EmittingNode) -> Iterator[Section]:
    for section in (Section.SERVICE, Section.ROLE, Section.EMITTER_PROFILE, Section.EMITTER):
        if node.owner in whole.section(section):
            yield section


def _circles(whole: BusSpec, bus: BusSpec) -> Iterator[ConfigurationProblem]:
    """Find event types that would be made of themselves by nodes and bots, and never end."""
    circle = graphs.find_circle(
        {name: {emitted for emitted, _ in _steps(whole, name)} for name in whole.event_types},
    )
    if circle:
        way = " to ".join(f'"{name}"' for name in circle)
        sentence = f"event types lead back to themselves: {way}"
        places = [place for one, other in pairwise(circle) for to, place in _steps(whole, one) if to == other]
        named = next((place for place in places if place[1] in bus.section(Section(place[0]))), places[0])
        yield ConfigurationProblem(named, sentence)


def _steps(whole: BusSpec, type_name: str) -> Iterator[tuple[str, Place]]:
    """Iterate over the event types that are made of one, each with the place that says so."""
    event_type = whole.event_types[type_name]
    for node in event_type.nodes.values():
        for emitted in node.emits:
            yield emitted, _place(event_type, node.name)
    for bot in whole.bots.values():
        # A bot that reads what it emits is told by the rules for bots.
        if type_name in bot.reads and not bot.reads & bot.emits:
            for emitted in bot.emits:
                yield emitted, (Section.BOT, bot.name, "emits")
