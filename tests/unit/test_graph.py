"""The rules of a graph, by example and against slow, obvious definitions."""

from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.graph import Graph, Node, problems


def worker(name: str, *children: str, service: str = "") -> Node:
    return Node(name, service or name, True, children)


def consumer(name: str, *children: str, service: str = "") -> Node:
    return Node(name, service or name, False, children)


def graph_of(*nodes: Node) -> Graph:
    return Graph({node.name: node for node in nodes})


DIAMOND = graph_of(
    worker("split", "fast", "slow"),
    worker("fast", "store"),
    worker("slow", "store", "audit"),
    consumer("store"),
    consumer("audit"),
)


def test_a_diamond_is_a_good_graph() -> None:
    assert problems(DIAMOND) == []


def test_an_empty_graph_is_a_good_graph() -> None:
    assert problems(Graph({})) == []


def test_the_start_is_where_no_node_leads_to() -> None:
    assert [node.name for node in DIAMOND.start_nodes] == ["split"]


def test_parents_are_told_in_order() -> None:
    assert DIAMOND.parents("store") == ("fast", "slow")
    assert DIAMOND.parents("split") == ()


def test_services_are_told_by_kind() -> None:
    assert DIAMOND.consumer_services == {"store", "audit"}
    assert DIAMOND.worker_services == {"split", "fast", "slow"}


def test_only_the_nodes_on_a_path_to_the_wanted_services_are_kept() -> None:
    part = DIAMOND.leading_to({"audit"})
    assert part == graph_of(worker("split", "slow"), worker("slow", "audit"), consumer("audit"))


def test_nothing_leads_to_a_service_that_no_node_has() -> None:
    assert DIAMOND.leading_to({"elsewhere"}) == Graph({})


def test_the_workers_before_a_service_are_told_in_order_where_one_way_leads_there() -> None:
    graph = graph_of(worker("clean", "price"), worker("price", "store"), consumer("store"), consumer("audit"))
    assert graph.workers_before("store") == ("clean", "price")
    assert graph.workers_before("audit") == ()
    assert graph.workers_before("clean") is None


@pytest.mark.parametrize(
    "graph",
    [
        DIAMOND,
        graph_of(worker("clean", "store"), worker("price", "store"), consumer("store")),
        graph_of(worker("clean", "store"), consumer("store"), Node("straight", "store", False)),
        graph_of(worker("clean", "store", "more"), consumer("store"), Node("more", "store", False)),
    ],
)
def test_no_workers_are_told_where_several_ways_lead_to_a_service(graph: Graph) -> None:
    assert graph.workers_before("store") is None


def test_a_worker_is_no_end_of_a_path() -> None:
    assert DIAMOND.leading_to({"slow"}) == Graph({})


def test_a_consumer_service_may_sit_in_several_nodes() -> None:
    nodes = graph_of(worker("enrich", "late"), consumer("early", service="store"), consumer("late", service="store"))
    assert problems(nodes) == []


def test_a_worker_service_may_sit_on_several_branches() -> None:
    nodes = graph_of(worker("left", "end", service="names"), worker("right", "end", service="names"), consumer("end"))
    assert problems(nodes) == []


@pytest.mark.parametrize(
    ("nodes", "sentences"),
    [
        pytest.param(
            [worker("a", "b"), worker("b", "c"), worker("c", "b", "end"), consumer("end")],
            ['nodes lead back to themselves: "b", "c"'],
            id="cycle",
        ),
        pytest.param(
            [worker("a", "a", "end"), consumer("end")],
            ['nodes lead back to themselves: "a"', 'no start node leads to "a", "end"'],
            id="a cycle of one, and so no start",
        ),
        pytest.param(
            [consumer("start"), worker("x", "y"), worker("y", "x", "z"), consumer("z")],
            ['nodes lead back to themselves: "x", "y"', 'no start node leads to "x", "y", "z"'],
            id="nodes that nothing reaches",
        ),
        pytest.param(
            [worker("a", service="names")],
            ['node "a" is of the worker service "names" but leads to no node'],
            id="worker without children",
        ),
        pytest.param(
            [consumer("a", "b", service="store"), consumer("b")],
            ['node "a" is of the consumer service "store" but leads to "b"'],
            id="consumer with children",
        ),
        pytest.param(
            [worker("a", "b", "gone"), consumer("b")],
            ['node "a" leads to "gone", which is not a node of this event type'],
            id="unknown child",
        ),
        pytest.param(
            [worker("a", "b", "b"), consumer("b")],
            ['node "a" leads to "b" more than once'],
            id="the same child twice",
        ),
        pytest.param(
            [worker("a", "b", service="names"), worker("b", "c"), worker("c", "end", service="names"), consumer("end")],
            ['worker service "names" is twice on a path: by node "a" and by node "c"'],
            id="worker service twice on a path",
        ),
        pytest.param(
            [
                worker("a1", "b1", service="A"),
                worker("b1", "end", service="B"),
                worker("b2", "a2", service="B"),
                worker("a2", "end", service="A"),
                consumer("end"),
            ],
            ['worker services would wait for each other\'s answers: "A", "B"'],
            id="services that wait for each other",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_refused_by_name(nodes: list[Node], sentences: list[str]) -> None:
    assert problems(graph_of(*nodes)) == sentences


@st.composite
def layered_graphs(draw: st.DrawFn) -> Graph:
    """Acyclic graphs, right but for the services of their workers: those are drawn from a few and may get entangled."""
    size = draw(st.integers(1, 8))
    nodes: dict[str, Node] = {}
    for number in range(size):
        later = [f"n{other}" for other in range(number + 1, size)]
        children = draw(st.lists(st.sampled_from(later), unique=True)) if later else []
        service = draw(st.sampled_from("ABCD"))
        nodes[f"n{number}"] = worker(f"n{number}", *children, service=service) if children else consumer(f"n{number}")
    return Graph(nodes)


def paths(graph: Graph, start: Node) -> list[list[Node]]:
    """Every path from ``start`` to an end."""
    tails = [path for child in start.children for path in paths(graph, graph.nodes[child])]
    return [[start, *tail] for tail in tails] if start.children else [[start]]


def all_paths(graph: Graph) -> list[list[Node]]:
    return [path for node in graph.start_nodes for path in paths(graph, node)]


@given(layered_graphs(), st.data())
def test_what_leads_to_services_is_what_is_on_a_path_to_them(graph: Graph, data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.sampled_from(sorted(graph.consumer_services))))
    on_a_path = {node.name for path in all_paths(graph) if path[-1].service in wanted for node in path}
    part = graph.leading_to(wanted)
    assert set(part.nodes) == on_a_path
    assert part.consumer_services == wanted
    assert {node.name for node in part.start_nodes} == on_a_path & {node.name for node in graph.start_nodes}


@given(layered_graphs())
def test_a_graph_of_layers_is_good_unless_its_worker_services_are_entangled(graph: Graph) -> None:
    merged: dict[str, set[str]] = {}
    for node in graph.nodes.values():
        if node.worker:
            followers = {graph.nodes[child] for child in node.children}
            merged.setdefault(node.service, set()).update(child.service for child in followers if child.worker)
    try:
        TopologicalSorter(merged).prepare()
        good = True
    except CycleError:
        good = False
    assert (problems(graph) == []) is good


@given(layered_graphs())
def test_every_worker_service_that_is_twice_on_a_path_is_named(graph: Graph) -> None:
    twice: set[str] = set()
    for path in all_paths(graph):
        services = [node.service for node in path if node.worker]
        twice |= {service for service in services if services.count(service) > 1}
    named = {service for service in "ABCD" for line in problems(graph) if f'"{service}" is twice on a path' in line}
    assert named == twice


@given(layered_graphs(), st.data())
def test_an_edge_back_up_a_path_makes_a_cycle(graph: Graph, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path in all_paths(graph) if len(path) > 1] or [[]]))
    if not path:
        return
    first, last = path[0], path[-2]
    edited = {**graph.nodes, last.name: worker(last.name, *last.children, first.name, service=last.service)}
    found = problems(Graph(edited))
    assert any(line.startswith("nodes lead back to themselves") and f'"{first.name}"' in line for line in found)
