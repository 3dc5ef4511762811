"""The plan of an event: which nodes bulk workers may serve, and which are left behind ready outputs; pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from xbus.broker.back.run.ways import names_behind
from xbus.graph import Graph, Node


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
