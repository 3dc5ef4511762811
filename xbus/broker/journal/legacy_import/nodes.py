"""Makes a graph as the bus has it out of the nodes of an event type of xbus.broker 0.2.0; pure.

There a node had no name, and two things defined its items: the edges, and its mark as a start node. The old broker
went by both, so a graph means here what it did there:

- A node that is not marked and that no marked one leads to got nothing. It is left out.
- A marked node that others lead to got the items as emitted as well as their answers. It becomes two nodes of its
  service, one of which is a start node: the bus hands both streams to the same recipient.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xbus.broker.journal.configuration.entries import NodeSpec
from xbus.broker.journal.legacy_import.rows import OldNode


@dataclass(frozen=True)
class LegacyGraph:
    """The nodes of an event type.

    Args:
        nodes: by name.
        silent: the names of the nodes that are left out as they got nothing.
        doubled: for each node that became two, its name and that of the start node beside it.
    """

    nodes: Mapping[str, NodeSpec]
    silent: tuple[str, ...] = ()
    doubled: tuple[tuple[str, str], ...] = ()


def translate_nodes(nodes: Sequence[OldNode], services: Mapping[str, str]) -> LegacyGraph:
    """Translate the graph of one event type.

    Args:
        nodes: all nodes of the type, whose children are among them.
        services: the name of each of their services by its id.
    """
    nodes = sorted(nodes, key=lambda node: node.id)
    names = _names(nodes, services)
    reached = _reached(nodes)
    has_parents = {child for node in nodes if node.id in reached for child in node.children}
    taken = set(names.values())
    translated: list[NodeSpec] = []
    doubled: list[tuple[str, str]] = []
    for node in nodes:
        if node.id in reached:
            made = NodeSpec(
                names[node.id], services[node.service_id], tuple(sorted(names[child] for child in node.children))
            )
            translated.append(made)
            if node.is_start and node.id in has_parents:
                start = next(name for name in _numbered(f"{made.name}_start") if name not in taken)
                taken.add(start)
                translated.append(NodeSpec(start, made.service, made.to))
                doubled.append((made.name, start))
    silent = tuple(names[node.id] for node in nodes if node.id not in reached)
    return LegacyGraph({node.name: node for node in translated}, silent, tuple(doubled))


def _names(nodes: Sequence[OldNode], services: Mapping[str, str]) -> dict[str, str]:
    """Name each node after its service, with a number if several nodes are of it.

    The numbers go by the old ids, so that the next import gives the same names.
    """
    uses = Counter(services[node.service_id] for node in nodes)
    taken = {service for service, number in uses.items() if number == 1}
    names: dict[str, str] = {}
    for node in nodes:
        service = services[node.service_id]
        if uses[service] > 1:
            name = next(name for name in _numbered(service, first=1) if name not in taken)
            taken.add(name)
            names[node.id] = name
        else:
            names[node.id] = service
    return names


def _numbered(name: str, first: int | None = None) -> Iterator[str]:
    """Iterate over ``name_1``, ``name_2`` and so on; before them the bare name, unless they begin with a number."""
    if first is None:
        yield name
    number = first or 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _reached(nodes: Iterable[OldNode]) -> set[str]:
    """Collect the ids of the nodes that got items: those marked, and all that these lead to."""
    children = {node.id: node.children for node in nodes}
    reached: set[str] = set()
    ahead = [node.id for node in nodes if node.is_start]
    while ahead:
        node_id = ahead.pop()
        if node_id not in reached:
            reached.add(node_id)
            ahead.extend(children[node_id])
    return reached
