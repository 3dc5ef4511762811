"""The rules for nodes that emit; pure."""

from collections.abc import Iterator
from itertools import pairwise

from xbus import graph as graphs
from xbus.broker.journal.configuration.chaining.owned import SEPARATOR, EmittingNode, emitting_nodes
from xbus.broker.journal.configuration.entries import (
    BusSpec,
    ConfigurationProblem,
    EventTypeSpec,
    NodeSpec,
    Place,
    Section,
)
from xbus.broker.journal.configuration.names import LONGEST_NAME


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
