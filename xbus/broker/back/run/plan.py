"""The plan of an event: which nodes bulk workers may serve, and which are left behind ready outputs; pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar
from uuid import UUID

from xbus.broker.back.log import RunBatch
from xbus.graph import Graph, Node

Target = TypeVar("Target")


class Unrouted(Exception):
    """An item has no way: its cause is a sentence."""


@dataclass(frozen=True, slots=True)
class NodeWays(Generic[Target]):
    """The ways behind one node, in the part of its graph that a run carries out.

    Args:
        node: in that part.
        behind: those that get items for which no type is named.
        aside: those that get items for which a type is named, by its id. A type whose node is not in this part is left
            out, though the whole graph has it.
    """

    node: Node
    behind: Sequence[Target]
    aside: Mapping[int, Sequence[Target]]

    @property
    def all(self) -> Iterable[Target]:
        """Every target, each once."""
        return dict.fromkeys([*self.behind, *(target for targets in self.aside.values() for target in targets)])

    def of(self, batch: RunBatch, type_id: int | None) -> Sequence[Target]:
        """Give the targets of a batch.

        Args:
            type_id: the id of the event type that its worker names, if the bus has such a type.

        Raises:
            Unrouted: the node does not emit that type; or it leads nowhere without one.
        """
        if batch.event_type is None:
            if not self.node.goes_on:
                raise Unrouted(
                    f'the worker names no event type for an item, and node "{self.node.name}" leads nowhere else'
                )
            return self.behind
        if type_id is None or type_id not in self.node.outs:
            raise Unrouted(
                f'the worker names event type "{batch.event_type}", which node "{self.node.name}" does not emit'
            )
        return self.aside.get(type_id, ())


def names_behind(graph: Graph, node: Node) -> tuple[str, ...]:
    """Name the nodes that get what is made without a type."""
    return tuple(child for child in dict.fromkeys(node.children) if not graph.nodes[child].aside)


def names_aside(node: Node) -> Mapping[int, tuple[str, ...]]:
    """Name the nodes of a part of the graph that get what is made for a type."""
    found = {type_id: tuple(child for child in names if child in node.children) for type_id, names in node.outs.items()}
    return {type_id: names for type_id, names in found.items() if names}


def bulk_nodes(graph: Graph, is_bulk: Callable[[Node], bool]) -> dict[str, str | None]:
    """The nodes whose output may be made as a whole: worker nodes at the start, or below nothing but another of them.

    A service that stands in several nodes sees an event once, by all of them together: it takes the ordinary path. So
    does a node that leads only to nodes aside: its worker has to name a type for each item, which no output can.

    Args:
        is_bulk: whether a bulk worker serves a node, or its output is being made or is there.

    Returns:
        Each with the node whose output it takes, None where it takes the event's items; from the start downwards.
    """
    nodes_of = Counter(node.service for node in graph.nodes.values())
    found: dict[str, str | None] = {}
    ahead: list[tuple[Node, str | None]] = [(node, None) for node in graph.start_nodes]
    while ahead:
        node, parent = ahead.pop(0)
        if not (node.worker and node.goes_on) or nodes_of[node.service] > 1 or not is_bulk(node):
            continue
        found[node.name] = parent
        children = dict.fromkeys(node.children)
        ahead += [(graph.nodes[child], node.name) for child in children if graph.parents(child) == (node.name,)]
    return found


@dataclass(frozen=True)
class EventPlan:
    """The part of an event's graph that recipients carry out, and where the items come in.

    Args:
        graph: without the nodes whose outputs are ready.
        starts: the names of the nodes that get the items as they were emitted.
        fed: by the id of the attempt that made it, the nodes that get the items of an output.
        appended: by the same id, the nodes that emit an output as it lies in the journal; none of them reads an item.
    """

    graph: Graph
    starts: tuple[str, ...]
    fed: Mapping[UUID, tuple[str, ...]]
    appended: Mapping[UUID, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def whole(cls, graph: Graph) -> "EventPlan":
        """All of a graph."""
        return cls(graph, tuple(node.name for node in graph.start_nodes), {})

    @classmethod
    def behind(
        cls, graph: Graph, outputs: Mapping[str, UUID], appends: Callable[[Node], bool] = lambda node: False
    ) -> "EventPlan":
        """Give the rest of a graph, behind outputs that are ready. Items of an output name no type: none goes aside.

        Args:
            outputs: the id of the attempt that made it, by the name of the node whose output it is.
            appends: whether a node emits an output as it lies in the journal.
        """
        if not outputs:
            return cls.whole(graph)
        kept = Graph(
            {
                name: replace(node, children=tuple(child for child in node.children if child not in outputs))
                for name, node in graph.nodes.items()
                if name not in outputs
            }
        )
        # A worker whose answers only went to nodes that have made theirs is not asked.
        kept = kept.leading_to(kept.consumer_services)
        starts = tuple(node.name for node in graph.start_nodes if node.name in kept.nodes)
        behind = {
            attempt_id: [child for child in names_behind(graph, graph.nodes[name]) if child in kept.nodes]
            for name, attempt_id in outputs.items()
            if name in graph.nodes
        }
        appending = {name for name, node in kept.nodes.items() if appends(node)}
        return cls(
            kept,
            starts,
            _some(behind, lambda name: name not in appending),
            _some(behind, lambda name: name in appending),
        )

    @property
    def has_outputs(self) -> bool:
        """Check whether any node gets an output."""
        return bool(self.fed or self.appended)

    def sources(self, names: list[str]) -> int:
        """From how many places in the journal items come to some nodes."""
        wanted = set(names)
        return sum(not wanted.isdisjoint(nodes) for nodes in (self.starts, *self.fed.values(), *self.appended.values()))


def _some(nodes_of: Mapping[UUID, Iterable[str]], is_wanted: Callable[[str], bool]) -> Mapping[UUID, tuple[str, ...]]:
    """Keep the nodes that are wanted, and the attempts that have any."""
    kept = {attempt_id: tuple(filter(is_wanted, nodes)) for attempt_id, nodes in nodes_of.items()}
    return {attempt_id: nodes for attempt_id, nodes in kept.items() if nodes}
