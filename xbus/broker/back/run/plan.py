"""The plan of an event: which nodes bulk workers may serve, and which are left behind ready outputs; pure."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from xbus.graph import Graph, Node


def bulk_nodes(graph: Graph, is_bulk: Callable[[Node], bool]) -> dict[str, str | None]:
    """The nodes whose output may be made as a whole: worker nodes at the start, or below nothing but another of them.

    A service that stands in several nodes sees an event once, by all of them together: it takes the ordinary path.

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
        if not node.worker or nodes_of[node.service] > 1 or not is_bulk(node):
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
        fed: by the id of the attempt that made it, the nodes that get an output.
    """

    graph: Graph
    starts: tuple[str, ...]
    fed: Mapping[UUID, tuple[str, ...]]

    @classmethod
    def whole(cls, graph: Graph) -> "EventPlan":
        """All of a graph."""
        return cls(graph, tuple(node.name for node in graph.start_nodes), {})

    @classmethod
    def behind(cls, graph: Graph, outputs: Mapping[str, UUID]) -> "EventPlan":
        """Give the rest of a graph, behind outputs that are ready.

        Args:
            outputs: the id of the attempt that made it, by the name of the node whose output it is.
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
        fed = {
            attempt_id: tuple(child for child in dict.fromkeys(graph.nodes[name].children) if child in kept.nodes)
            for name, attempt_id in outputs.items()
            if name in graph.nodes
        }
        return cls(kept, starts, {attempt_id: nodes for attempt_id, nodes in fed.items() if nodes})

    def sources(self, names: list[str]) -> int:
        """From how many places in the journal items come to some nodes."""
        wanted = set(names)
        return (not wanted.isdisjoint(self.starts)) + sum(not wanted.isdisjoint(nodes) for nodes in self.fed.values())
