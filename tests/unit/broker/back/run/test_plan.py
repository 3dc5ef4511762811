"""Which nodes bulk workers serve, and what is left behind what they made."""

from uuid import UUID

import pytest

from tests.support.delivering import Nodes, graph_of
from xbus.broker.back.run.plan import EventPlan, bulk_nodes
from xbus.graph import Node

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
