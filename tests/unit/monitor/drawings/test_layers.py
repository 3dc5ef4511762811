"""Nodes in layers: none overlaps, few edges cross, long edges pass between the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.monitor.drawings.graphs import BEND_HEIGHT, GAP, TALL, Bend, arrange, spread


def test_what_has_room_stays_where_it_wants_to_be() -> None:
    assert [*spread([10, 100, 300], [20, 20, 20])] == [10, 100, 300]


def test_what_overlaps_stands_around_its_middle() -> None:
    assert [*spread([100, 100], [20, 20], gap=10)] == [85, 115]


@given(st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(1, 200)), max_size=40))
def test_nothing_overlaps_and_the_order_stays(wishes: list[tuple[float, float]]) -> None:
    sizes = [size for _, size in wishes]
    middles = [*spread([want for want, _ in wishes], sizes)]
    for (above, size), (below, size_below) in zip(
        zip(middles, sizes, strict=True), [*zip(middles, sizes, strict=True)][1:], strict=False
    ):
        assert below - above >= (size + size_below) / 2 + GAP - 1e-6


def test_neighbours_stand_at_the_same_height() -> None:
    layers = arrange([["a", "b"], ["x", "y"]], dict.fromkeys("abxy", 30.0), {("a", "y"): 1.0, ("b", "x"): 1.0})
    assert layers.tops["a"] == layers.tops["y"]
    assert layers.tops["b"] == layers.tops["x"]
    assert layers.height == 60 + GAP


def test_an_edge_over_a_layer_passes_a_bend_that_edges_to_its_target_share() -> None:
    heights = dict.fromkeys("abmz", 30.0)
    edges = {("a", "z"): 1.0, ("b", "z"): 2.0, ("a", "m"): 4.0, ("m", "z"): 4.0}
    layers = arrange([["a", "b"], ["m"], ["z"]], heights, edges)
    bend = Bend("z", 1)
    assert sorted((str(piece.source), str(piece.target), piece.weight) for piece in layers.pieces) == sorted(
        [
            ("a", "m", 4.0),
            ("m", "z", 4.0),
            ("a", str(bend), 1.0),
            ("b", str(bend), 2.0),
            (str(bend), "z", 3.0),
        ]
    )
    low, high = sorted([(layers.tops["m"], 30.0), (layers.tops[bend], BEND_HEIGHT)])
    assert low[0] + low[1] <= high[0]


def test_edges_back_and_in_a_layer_go_directly() -> None:
    layers = arrange([["a"], ["x", "y"]], dict.fromkeys("axy", 30.0), {("x", "y"): 1.0, ("y", "a"): 1.0})
    assert {(piece.source, piece.target) for piece in layers.pieces} == {("x", "y"), ("y", "a")}


def test_nothing_has_no_height() -> None:
    assert arrange([], {}, {}).height == 0


def test_each_layer_of_a_tall_drawing_begins_at_the_top() -> None:
    many = [f"many {number}" for number in range(30)]
    heights = dict.fromkeys([*many, "a"], 30.0)
    layers = arrange([["a"], many], heights, {("a", many[-1]): 1.0})
    assert layers.height > TALL
    assert layers.tops["a"] == min(layers.tops[each] for each in many) == 0


@pytest.mark.parametrize("sweeps", [0, 6])
def test_few_edges_cross(sweeps: int) -> None:
    names = [chr(ord("a") + number) for number in range(8)]
    others = [name.upper() for name in reversed(names)]
    edges = {(name, name.upper()): 1.0 for name in names}
    layers = arrange([names, others], dict.fromkeys([*names, *others], 30.0), edges, sweeps)
    ends = [(layers.tops[name], layers.tops[name.upper()]) for name in names]
    crossings = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a in ends for b in ends) // 2
    assert crossings == (28 if sweeps == 0 else 0)
