"""Graphs of xbus.broker 0.2.0: what its nodes are called here, and what they get."""

from collections.abc import Mapping, Sequence

from xbus.broker.journal.configuration import NodeSpec
from xbus.broker.journal.legacy_import.rows import OldNode
from xbus.broker.journal.legacy_import.translation import LegacyGraph, translate_nodes

SERVICES = {"W": "worker", "X": "other", "C": "consumer"}


def translated(nodes: Mapping[str, tuple[str, Sequence[str]]], start: str) -> LegacyGraph:
    """The graph of nodes by their ids, each with its service and its children; the start nodes are marked."""
    rows = [
        OldNode(node_id, "type", service_id, node_id in start, tuple(children))
        for node_id, (service_id, children) in nodes.items()
    ]
    return translate_nodes(rows, SERVICES)


def nodes(*expected: NodeSpec) -> dict[str, NodeSpec]:
    return {node.name: node for node in expected}


def test_a_node_is_named_as_its_service() -> None:
    graph = translated({"1": ("W", "2"), "2": ("C", "")}, start="1")
    assert graph == LegacyGraph(nodes(NodeSpec("worker", "worker", ("consumer",)), NodeSpec("consumer", "consumer")))


def test_nodes_of_one_service_are_numbered_by_their_ids() -> None:
    graph = translated({"3": ("C", ""), "2": ("W", "3"), "1": ("C", "")}, start="12")
    assert graph.nodes == nodes(
        NodeSpec("consumer_1", "consumer"),
        NodeSpec("worker", "worker", ("consumer_2",)),
        NodeSpec("consumer_2", "consumer"),
    )


def test_a_number_that_another_service_is_called_by_is_passed_over() -> None:
    rows = [OldNode(node_id, "type", service, True) for node_id, service in (("1", "A"), ("2", "A"), ("3", "B"))]
    graph = translate_nodes(rows, {"A": "store", "B": "store_1"})
    assert {name: node.service for name, node in graph.nodes.items()} == {
        "store_2": "store",
        "store_3": "store",
        "store_1": "store_1",
    }


def test_what_no_marked_node_leads_to_is_left_out() -> None:
    graph = translated({"1": ("C", ""), "2": ("W", "34"), "3": ("X", "1"), "4": ("C", "")}, start="1")
    assert graph.nodes == nodes(NodeSpec("consumer_1", "consumer"))
    assert graph.silent == ("worker", "other", "consumer_2")


def test_without_a_mark_nobody_gets_anything() -> None:
    graph = translated({"1": ("W", "2"), "2": ("C", "")}, start="")
    assert graph == LegacyGraph({}, silent=("worker", "consumer"))


def test_an_edge_from_a_node_that_is_left_out_goes_with_it() -> None:
    graph = translated({"1": ("W", "3"), "2": ("X", "3"), "3": ("C", "")}, start="13")
    assert graph.nodes.keys() == {"worker", "consumer", "consumer_start"}
    assert translated({"2": ("X", "3"), "3": ("C", "")}, start="3") == LegacyGraph(
        nodes(NodeSpec("consumer", "consumer")), silent=("other",)
    )


def test_a_marked_node_that_others_lead_to_becomes_two() -> None:
    graph = translated({"1": ("W", "2"), "2": ("X", "3"), "3": ("C", "")}, start="12")
    assert graph.nodes == nodes(
        NodeSpec("worker", "worker", ("other",)),
        NodeSpec("other", "other", ("consumer",)),
        NodeSpec("other_start", "other", ("consumer",)),
        NodeSpec("consumer", "consumer"),
    )
    assert graph.doubled == (("other", "other_start"),)


def test_the_second_of_the_two_takes_no_name_that_there_is() -> None:
    rows = [OldNode("1", "type", "A", True, ("2",)), OldNode("2", "type", "B", True), OldNode("3", "type", "D", True)]
    graph = translate_nodes(rows, {"A": "names", "B": "store", "D": "store_start"})
    assert graph.doubled == (("store", "store_start_2"),)


def test_the_order_of_the_rows_makes_no_difference() -> None:
    rows = [OldNode(node_id, "type", "C", node_id != "3") for node_id in "4132"]
    assert translate_nodes(rows, SERVICES) == translate_nodes(rows[::-1], SERVICES)


def test_a_cycle_comes_to_an_end() -> None:
    graph = translated({"1": ("W", "2"), "2": ("X", "1")}, start="1")
    assert graph.nodes["worker"].to == ("other",)
    assert graph.nodes["other"].to == ("worker",)
