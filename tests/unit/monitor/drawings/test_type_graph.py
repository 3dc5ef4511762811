"""Graphs of event types as drawings, right ones and wrong ones."""

from hypothesis import given
from hypothesis import strategies as st

from xbus.monitor.drawings.graphs import HEIGHT, WIDTH, TypeDrawing, TypeNode, draw_type


def drawn(**nodes: str) -> TypeDrawing:
    """Draw nodes, each with the names behind it as letters."""
    return draw_type(TypeNode(name, "service", "worker", tuple(to)) for name, to in nodes.items())


def lefts(drawing: TypeDrawing) -> dict[str, float]:
    return {box.node.name: box.left for box in drawing.boxes}


def test_each_node_stands_right_of_all_that_lead_to_it() -> None:
    found = lefts(drawn(c="", a="bc", b="c"))
    assert found["a"] < found["b"] < found["c"]


def test_a_line_ends_at_each_node() -> None:
    drawing = drawn(a="bd", b="c", c="d", d="")
    assert len(drawing.tips) == 5
    assert all(tip.startswith("M") for tip in drawing.tips)
    assert drawing.lines


def test_nothing_is_drawn_of_nothing() -> None:
    assert (draw_type(()).width, draw_type(()).words) == (0, "It leads nowhere.")


def test_a_circle_and_a_lost_child_can_be_drawn() -> None:
    assert len(drawn(a="b", b="a").boxes) == 2
    assert len(drawn(a="a").tips) == 1
    assert len(drawn(a="z").tips) == 1


GRAPHS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


@given(GRAPHS)
def test_any_graph_has_its_place(edges: list[tuple[int, int]]) -> None:
    names = {each for edge in edges for each in edge}
    nodes = [TypeNode(str(name), "s", "", [str(to) for one, to in edges if one == name]) for name in names]
    drawing = draw_type(nodes)
    places = [(box.left, box.top) for box in drawing.boxes]
    assert len(set(places)) == len(nodes)
    assert all(0 <= left <= drawing.width - WIDTH and 0 <= top <= drawing.height - HEIGHT for left, top in places)
