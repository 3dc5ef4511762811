"""The graph of a bus: boxes that don't overlap, curves by what passes, and few boxes where there are many."""

import pytest

from xbus.admin.output import columns_of
from xbus.monitor.drawings.graphs import (
    BOX_WIDTH,
    LETTERS,
    MOST_ROWS,
    Box,
    BusDrawing,
    GraphColumn,
    GraphNode,
    GraphRow,
    draw,
    texts,
)

HOSTILE = ["<script>alert(1)</script>", "x" * 1000, "\u202egnp.exe", "漢" * 500, "a\nb\x00c", "", "\ud800"]


def node(key: str, weight: float = 0.0, tone: str = "", rows: int = 0) -> GraphNode:
    return GraphNode(
        key,
        "emitter",
        GraphRow(key, f"/emitters/{key}", tone),
        [GraphRow(f"{key} {number}") for number in range(rows)],
        weight,
    )


def overlap(one: Box, other: Box) -> bool:
    return one.left == other.left and one.top < other.top + other.height and other.top < one.top + one.height


def test_boxes_stand_in_columns_and_never_overlap() -> None:
    columns = [
        GraphColumn("Left", [node(f"l{number}", rows=number % 4) for number in range(12)]),
        GraphColumn("Right", [node(f"r{number}") for number in range(5)]),
    ]
    edges = {(f"l{number}", f"r{number % 5}"): float(number) for number in range(12)}
    drawing = draw(columns, edges)
    assert [title for _, title in drawing.titles] == ["Left", "Right"]
    assert len({box.left for box in drawing.boxes}) == 2
    boxes = [*drawing.boxes]
    assert not [(one, other) for one in boxes for other in boxes if one is not other and overlap(one, other)]
    assert all(box.left + BOX_WIDTH <= drawing.width and box.top + box.height <= drawing.height for box in boxes)
    assert all(box.top >= 0 for box in boxes)


def test_more_makes_a_curve_thicker() -> None:
    columns = [GraphColumn("", [node("a")]), GraphColumn("", [node("x"), node("y"), node("z")])]
    drawing = draw(columns, {("a", "x"): 0.0, ("a", "y"): 1.0, ("a", "z"): 100_000.0})
    idle, some, many = drawing.curves
    assert (idle.is_idle, some.is_idle, many.is_idle) == (True, False, False)
    assert idle.width < some.width < many.width < 10


def test_an_edge_to_nothing_is_left_out() -> None:
    assert draw([GraphColumn("", [node("a")])], {("a", "gone"): 1.0, ("gone", "a"): 1.0}).curves == []


def test_empty_columns_are_left_out() -> None:
    drawing = draw([GraphColumn("None", []), GraphColumn("Some", [node("a")])], {})
    assert [title for _, title in drawing.titles] == ["Some"]
    assert draw([], {}) == BusDrawing(0.0, drawing.height - 30, [], [], [])


def test_of_many_boxes_the_calmest_are_one() -> None:
    many = [node(f"n{number:03}", weight=number) for number in range(100)]
    many[5] = node("n005", tone="bad")
    columns = [GraphColumn("Many", many, "/all"), GraphColumn("", [node("z")])]
    drawing = draw(columns, {(each.key, "z"): 1.0 for each in many}, most_boxes=10)
    kept = [box.node for box in drawing.boxes if box.left < BOX_WIDTH]
    assert len(kept) == 10
    assert "n005" in {each.key for each in kept}
    (rest,) = [each for each in kept if each.head.name == "91 more"]
    assert rest.head.address == "/all"
    assert "n000" in rest.head.about
    assert len(drawing.curves) == 10


def test_of_many_rows_the_calmest_are_left_out() -> None:
    rows = [GraphRow(f"role {number}", tone="bad" if number == 50 else "") for number in range(99)]
    drawing = draw([GraphColumn("", [GraphNode("s", "consumer", GraphRow("s", "/s"), rows)])], {})
    (box,) = drawing.boxes
    names = [row.row.name for row in box.rows]
    assert len(names) == MOST_ROWS
    assert "role 50" in names
    assert names[-1] == f"{100 - MOST_ROWS} more"
    assert box.tone == "bad"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_fits_into_its_box(name: str) -> None:
    row = GraphRow(name, figure="3 parked")
    assert columns_of(row.label) <= LETTERS
    assert row.label.isprintable()
    drawing = draw([GraphColumn("", [GraphNode("a", "emitter", row)])], {})
    assert [each.name for each in texts(drawing)] == [name]


def test_workers_that_follow_each_other_both_ways_are_drawn() -> None:
    columns = [GraphColumn("", [node("t")]), GraphColumn("", [node("a"), node("b")])]
    assert len(draw(columns, {("a", "b"): 1.0, ("b", "a"): 1.0, ("t", "a"): 2.0}).curves) == 3
