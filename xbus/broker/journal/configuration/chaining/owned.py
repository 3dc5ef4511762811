"""The entries that the bus has of its own for nodes that emit: administrators name only the node; pure.

For each of these nodes there is a service that the bus itself provides, a role, an emitter and its profile. All four
are called by event type and node, as ``orders/enriched``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from xbus.broker.journal.configuration.entries import (
    BusSpec,
    EmitterSpec,
    EventTypeSpec,
    NodeSpec,
    ProfileSpec,
    RoleSpec,
    ServiceSpec,
)

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
