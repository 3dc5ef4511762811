"""The ways of what a worker makes: to the nodes behind its own, or aside, as the event type that it names; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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
