"""The way that events of a type take from start nodes through workers to consumers; pure.

Nodes name the service that they want; edges lead from a worker to what gets its answers. The rules that make a graph
runnable are those of ``docs/wire.md``, "Graph semantics", and of the design: a service is at most once among the
workers of a path.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain


@dataclass(frozen=True)
class Node:
    """A place in a graph.

    Args:
        name: unique within its graph.
        service: the name of the service that provides it; several nodes may name the same one.
        worker: whether that service is a worker (answers items) or a consumer (ends the line).
        children: names of the nodes that get what it answers, in the order in which they were declared.
        emits: the id of the event type as which the bus itself emits what comes; None for nodes that programs serve.
        aside: whether it gets only items whose worker names that type.
        outs: of a worker's node, which of its children get an item whose worker names a type, by the type's id. A part
            of the graph that leaves children out keeps it.
        goes_on: whether items whose worker names no type have a way in the whole graph.
    """

    name: str
    service: str
    worker: bool
    children: tuple[str, ...] = ()
    emits: int | None = None
    aside: bool = False
    outs: Mapping[int, tuple[str, ...]] = field(default_factory=dict, hash=False)
    goes_on: bool = True


@dataclass(frozen=True)
class Graph:
    """The nodes of one version of an event type's graph, by name. It may be empty: then nobody is owed anything."""

    nodes: Mapping[str, Node]

    @cached_property
    def start_nodes(self) -> tuple[Node, ...]:
        """The nodes that no node leads to: they get the items as emitted."""
        return tuple(node for node in self.nodes.values() if not self.parents(node.name))

    def parents(self, name: str) -> tuple[str, ...]:
        """Collect the names of the nodes that lead to ``name``."""
        return self._parents.get(name, ())

    @cached_property
    def consumer_services(self) -> frozenset[str]:
        """The services that end the line somewhere in this graph."""
        return frozenset(node.service for node in self.nodes.values() if not node.worker)

    @cached_property
    def direct_services(self) -> frozenset[str]:
        """The consumer services that get items as they were emitted, and from no worker."""
        behind_workers = {node.service for node in self.nodes.values() if not node.worker and self.parents(node.name)}
        return self.consumer_services - behind_workers

    def workers_before(self, service: str) -> tuple[str, ...] | None:
        """The worker services on the way to a consumer service, in order; None where no single way leads there."""
        return self._ways.get(service)

    @cached_property
    def _ways(self) -> Mapping[str, tuple[str, ...] | None]:
        return {service: self._way(service) for service in self.consumer_services}

    def _way(self, service: str) -> tuple[str, ...] | None:
        if service in self.direct_services:
            return ()
        if any(node.aside for node in self.nodes.values() if node.service == service):
            # Only some items come here.
            return None
        part = self.leading_to({service}).nodes
        starts = part.keys() - {child for node in part.values() for child in node.children}
        if len(starts) > 1 or any(len(node.children) > 1 for node in part.values()):
            return None
        return tuple(node.service for node in _along(part, *starts) if node.worker)

    def nodes_of(self, service: str) -> tuple[str, ...]:
        """The names of a service's nodes."""
        return tuple(node.name for node in self.nodes.values() if node.service == service)

    @cached_property
    def worker_services(self) -> frozenset[str]:
        """The services that transform items somewhere in this graph."""
        return frozenset(node.service for node in self.nodes.values() if node.worker)

    def workers_towards(self, service: str) -> frozenset[str]:
        """The worker services on any way to a consumer service; none where it is not in this graph."""
        return self._workers_towards.get(service, frozenset())

    @cached_property
    def _workers_towards(self) -> Mapping[str, frozenset[str]]:
        return {service: self.leading_to({service}).worker_services for service in self.consumer_services}

    def leading_to(self, services: Collection[str]) -> "Graph":
        """Cut the part of this graph that is on a path to a consumer node of one of ``services``."""
        targets = {node.name for node in self.nodes.values() if not node.worker and node.service in services}
        kept = targets.union(*(self._ancestors[name] for name in targets))
        return Graph(
            {
                name: replace(node, children=tuple(child for child in node.children if child in kept))
                for name, node in self.nodes.items()
                if name in kept
            }
        )

    @cached_property
    def is_cyclic(self) -> bool:
        """True where nodes lead back to themselves: nothing could go that way."""
        return any(True for _ in _cycles(_reachable({node.name: node.children for node in self.nodes.values()})))

    @property
    def lacks_services(self) -> bool:
        """Check whether a node names a service that does not exist: its events would miss it."""
        return not all(node.service for node in self.nodes.values())

    @cached_property
    def _ancestors(self) -> Mapping[str, set[str]]:
        return _reachable({name: self.parents(name) for name in self.nodes})

    @cached_property
    def _parents(self) -> Mapping[str, tuple[str, ...]]:
        parents: dict[str, tuple[str, ...]] = {}
        for node in self.nodes.values():
            for child in dict.fromkeys(node.children):
                parents[child] = (*parents.get(child, ()), node.name)
        return parents


def find_circle(successors: Mapping[str, Collection[str]]) -> list[str]:
    """Find a way that leads back to where it began: the names along it, the first at its end, too; empty for none."""
    for name, ahead in _reachable(successors).items():
        if name in ahead:
            return [*_way_to(name, successors), name]
    return []


def _way_to(name: str, successors: Mapping[str, Collection[str]]) -> list[str]:
    """Find a shortest way from a name back to itself, without its end."""
    ways = [[name]]
    seen = set()
    for way in ways:
        for following in sorted(successors.get(way[-1], ())):
            if following == name:
                return way
            if following not in seen:
                seen.add(following)
                ways.append([*way, following])
    return []


def _along(nodes: Mapping[str, Node], start: str) -> Iterable[Node]:
    """Follow nodes that have one child at the most."""
    name: str | None = start
    while name is not None:
        yield nodes[name]
        name = next(iter(nodes[name].children), None)


def graph_of(nodes: Iterable[Node]) -> Graph:
    """Make a graph of its nodes; those of workers learn which of their children emit."""
    by_name = {node.name: node for node in nodes}

    def with_outs(node: Node) -> Node:
        children = [by_name[child] for child in node.children if child in by_name]
        emitting = [child for child in children if child.emits is not None]
        if not emitting:
            return node
        outs = {emits: tuple(each.name for each in emitting if each.emits == emits) for emits in _types(emitting)}
        return replace(node, outs=outs, goes_on=not all(child.aside for child in children))

    return Graph({name: with_outs(node) for name, node in by_name.items()})


def _types(nodes: Iterable[Node]) -> Iterable[int]:
    return dict.fromkeys(node.emits for node in nodes if node.emits is not None)


def problems(graph: Graph) -> list[str]:
    """List why ``graph`` can't be run, a sentence for each reason with nodes or services; empty if it can.

    Beyond the shape of the graph this refuses worker services that would wait for each other: one role of a service
    gets an event once, by all its nodes together, so a service that needs its own answers, directly or through others,
    would never end.
    """
    unknown = [*_unknown_children(graph)]
    if unknown:
        return unknown
    reachable = _reachable({node.name: node.children for node in graph.nodes.values()})
    cycles = [*_cycles(reachable)]
    return [
        *_repeated_children(graph),
        *_misplaced_ends(graph),
        *cycles,
        *_unreached(graph, reachable),
        *([] if cycles else _entangled_services(graph, reachable)),
    ]


def _unknown_children(graph: Graph) -> Iterable[str]:
    for node in graph.nodes.values():
        for child in node.children:
            if child not in graph.nodes:
                yield f'node "{node.name}" leads to "{child}", which is not a node of this event type'


def _repeated_children(graph: Graph) -> Iterable[str]:
    for node in graph.nodes.values():
        for child in dict.fromkeys(node.children):
            if node.children.count(child) > 1:
                yield f'node "{node.name}" leads to "{child}" more than once'


def _misplaced_ends(graph: Graph) -> Iterable[str]:
    for node in graph.nodes.values():
        if node.worker and not node.children:
            yield f'node "{node.name}" is of the worker service "{node.service}" but leads to no node'
        if not node.worker and node.children:
            yield f'node "{node.name}" is of the consumer service "{node.service}" but leads to {_names(node.children)}'


def _cycles(reachable: Mapping[str, set[str]]) -> Iterable[str]:
    for knot in _knots(reachable):
        yield f"nodes lead back to themselves: {_names(knot)}"


def _unreached(graph: Graph, reachable: Mapping[str, set[str]]) -> Iterable[str]:
    reached = {name for start in graph.start_nodes for name in (start.name, *reachable[start.name])}
    unreached = [name for name in graph.nodes if name not in reached]
    if unreached:
        yield f"no start node leads to {_names(unreached)}"


def _entangled_services(graph: Graph, reachable: Mapping[str, set[str]]) -> Iterable[str]:
    repeated = _services_repeated_on_a_path(graph, reachable)
    for service, (first, second) in repeated.items():
        yield f'worker service "{service}" is twice on a path: by node "{first}" and by node "{second}"'
    for knot in _knots(_reachable(_merged_workers(graph))):
        if repeated.keys().isdisjoint(knot):
            yield f"worker services would wait for each other's answers: {_names(knot)}"


def _services_repeated_on_a_path(graph: Graph, reachable: Mapping[str, set[str]]) -> dict[str, tuple[str, str]]:
    """Find for each worker service that meets itself further down the first pair of nodes."""
    pairs: dict[str, tuple[str, str]] = {}
    for node in graph.nodes.values():
        for name in graph.nodes:
            if node.worker and name in reachable[node.name] and graph.nodes[name].service == node.service:
                pairs.setdefault(node.service, (node.name, name))
    return pairs


def _merged_workers(graph: Graph) -> dict[str, set[str]]:
    """Map each worker service to the worker services that get answers from any of its nodes."""
    followers: dict[str, set[str]] = {service: set() for service in sorted(graph.worker_services)}
    for node in graph.nodes.values():
        if node.worker:
            children = (graph.nodes[child] for child in node.children)
            followers[node.service].update(child.service for child in children if child.worker)
    return followers


def _reachable(successors: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """Map each name to all that it leads to in one step or more; to itself only on a cycle."""
    return {name: _walk(name, successors) for name in successors}


def _walk(start: str, successors: Mapping[str, Collection[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [*successors[start]]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead.extend(successors.get(name, ()))
    return seen


def _knots(reachable: Mapping[str, set[str]]) -> list[list[str]]:
    """Find the sets of names that all lead to one another, each once."""
    knots: list[list[str]] = []
    for name, ahead in reachable.items():
        if name in ahead and name not in chain.from_iterable(knots):
            knots.append([other for other in reachable if other in ahead and name in reachable[other]])
    return knots


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
