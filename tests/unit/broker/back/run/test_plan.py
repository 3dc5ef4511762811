"""Which nodes bulk workers serve, and what is left behind what they made."""

from dataclasses import replace
from uuid import UUID

import pytest

from tests.support.delivering import Nodes, graph_of
from xbus.broker.back.run.plan import EventPlan, bulk_nodes
from xbus.graph import Graph, Node
from xbus.graph import graph_of as whole_graph

A, B = UUID(int=1), UUID(int=2)


def bulk(nodes: Nodes, *services: str) -> dict[str, str | None]:
    def is_bulk(node: Node) -> bool:
        return node.service in services

    return bulk_nodes(graph_of(nodes), is_bulk)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ({"w": ["c"], "c": []}, {"w": None}),
        ({"c": []}, {}),
        ({"v": ["w"], "w": ["c"], "c": []}, {"v": None, "w": "v"}),
        ({"plain": ["w"], "w": ["c"], "c": []}, {}),
        ({"v": ["both", "c"], "w": ["both"], "both": ["c"], "c": []}, {"v": None, "w": None}),
        ({"one:w": ["c"], "two:w": ["d"], "c": [], "d": []}, {}),
        ({"v": ["plain", "w"], "plain": ["c"], "w": ["c"], "c": []}, {"v": None, "w": "v"}),
    ],
    ids=["start", "consumer", "chain", "below an ordinary worker", "merge", "service in two nodes", "fork"],
)
def test_bulk_nodes_stand_at_the_start_or_below_another(nodes: Nodes, found: dict[str, str | None]) -> None:
    assert bulk(nodes, "v", "w", "both") == found


def aside_of(nodes: Nodes, *aside: str) -> Graph:
    """A graph with nodes that get only what names their type, 1."""
    nodes_in = graph_of(nodes).nodes.values()
    return whole_graph(replace(node, emits=1, aside=True) if node.name in aside else node for node in nodes_in)


def test_a_node_whose_items_must_name_a_type_is_no_bulk_node() -> None:
    every = lambda node: True  # noqa: E731
    assert bulk_nodes(aside_of({"w": ["a"], "a": []}, "a"), every) == {}
    assert bulk_nodes(aside_of({"w": ["c", "a"], "c": [], "a": []}, "a"), every) == {"w": None}


def test_nothing_of_an_output_goes_aside() -> None:
    graph = aside_of({"w": ["c", "a"], "c": [], "a": []}, "a")
    course = EventPlan.behind(graph, {"w": A})
    assert (set(course.graph.nodes), course.starts, course.fed) == ({"a", "c"}, (), {A: ("c",)})
    assert (course.sources(["c"]), course.sources(["a"])) == (1, 0)
    assert EventPlan.behind(graph.leading_to({"a"}), {"w": A}).fed == {}


def test_a_node_that_emits_an_output_gets_it_apart_from_the_others() -> None:
    course = EventPlan.behind(
        graph_of({"w": ["c", "copy"], "c": [], "copy": []}), {"w": A}, lambda node: node.name == "copy"
    )
    assert (course.fed, course.appended) == ({A: ("c",)}, {A: ("copy",)})
    assert (course.has_outputs, course.sources(["copy"]), course.sources(["c"])) == (True, 1, 1)


def test_without_outputs_all_of_it_is_carried_out() -> None:
    graph = graph_of({"w": ["c"], "c": []})
    assert EventPlan.behind(graph, {}) == EventPlan(graph, ("w",), {})


def test_an_output_feeds_the_children_of_its_node() -> None:
    course = EventPlan.behind(graph_of({"w": ["c", "d"], "c": [], "d": []}), {"w": A})
    assert (set(course.graph.nodes), course.starts, course.fed) == ({"c", "d"}, (), {A: ("c", "d")})


def test_start_nodes_still_get_what_was_emitted() -> None:
    course = EventPlan.behind(graph_of({"w": ["c"], "c": [], "d": []}), {"w": A})
    assert (course.starts, course.fed) == (("d",), {A: ("c",)})


def test_of_outputs_below_one_another_only_those_count_that_something_is_left_behind() -> None:
    graph = graph_of({"v": ["w", "c"], "w": ["c"], "c": []})
    course = EventPlan.behind(graph, {"v": A, "w": B})
    assert (set(course.graph.nodes), course.fed) == ({"c"}, {A: ("c",), B: ("c",)})
    assert course.sources(["c"]) == 2
    assert EventPlan.behind(graph_of({"v": ["w"], "w": ["c"], "c": []}), {"v": A, "w": B}).fed == {B: ("c",)}


def test_a_merge_gets_items_from_an_output_and_from_a_worker() -> None:
    course = EventPlan.behind(graph_of({"v": ["both"], "plain": ["both"], "both": ["c"], "c": []}), {"v": A})
    assert (course.starts, course.fed, course.sources(["both"])) == (("plain",), {A: ("both",)}, 1)
    assert course.graph.worker_services == {"plain", "both"}
