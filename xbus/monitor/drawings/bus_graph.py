"""Draws a bus as a graph: boxes in columns from left to right, joined by curves that are as thick as much passes."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xbus.admin.output import cut, on_one_line
from xbus.monitor.drawings.layers import BEND_HEIGHT, Bend, Place, arrange
from xbus.states import RISING_TONES

BOX_WIDTH = 178.0
COLUMN_GAP = 66.0
HEAD_HEIGHT = 30.0
ROW_HEIGHT = 22.0
MARGIN = 8.0
LETTERS = 20
"""Columns of text that fit into a box, with its figure."""

MOST_BOXES = 24
"""Boxes of a column. Of more the calmest are drawn as one, so that the graph stays readable."""

MOST_ROWS = 6
"""Rows of a box. Of more the calmest are left out, and their number is told."""


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A line of text in a box.

    Args:
        name: anything, however long.
        address: the page that it leads to; None for none.
        tone: one of :data:`~xbus.states.RISING_TONES`: how much it asks for a person.
        figure: a short text at its end, such as a rate.
        about: all that is to be said of it, for those who point at it or can't see it.
    """

    name: str
    address: str | None = None
    tone: str = ""
    figure: str = ""
    about: str = ""

    @property
    def shown_figure(self) -> str:
        """The figure, short enough for a box."""
        return cut(on_one_line(self.figure), LETTERS // 2)

    @property
    def label(self) -> str:
        """Its name, cut to what fits."""
        return cut(on_one_line(self.name), LETTERS - len(self.shown_figure) - bool(self.figure))


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box before it has its place.

    Args:
        key: names it among all nodes.
        kind: such as ``emitter``.
        head: its first line.
        rows: further lines.
        weight: how much passes; the calmest of a column are drawn as one.
    """

    key: str
    kind: str
    head: GraphRow
    rows: Sequence[GraphRow] = ()
    weight: float = 0.0

    @property
    def importance(self) -> tuple[int, float]:
        """Trouble first, then what passes."""
        return max(RISING_TONES.index(row.tone) for row in (self.head, *self.rows)), self.weight


class GraphColumn(NamedTuple):
    """A column of a graph.

    Args:
        title: stands above it.
        rest_address: the page that shows all of it, where some are drawn as one.
    """

    title: str
    nodes: Sequence[GraphNode]
    rest_address: str | None = None


class DrawnRow(NamedTuple):
    """A line of a box, ``top`` in pixels from the top of the drawing."""

    row: GraphRow
    top: float


@dataclass(frozen=True, slots=True)
class Box:
    """A box in its place, in pixels."""

    node: GraphNode
    left: float
    top: float
    height: float
    rows: Sequence[DrawnRow]

    @property
    def tone(self) -> str:
        """The worst tone in it."""
        return RISING_TONES[self.node.importance[0]]


class Curve(NamedTuple):
    """A curve between two boxes.

    Args:
        path: the data of a path (SVG 2, chapter 9).
        width: pixels.
        is_idle: whether nothing passed a moment ago.
    """

    path: str
    width: float
    is_idle: bool


@dataclass(frozen=True, slots=True)
class BusDrawing:
    """A graph with all places, in pixels."""

    width: float
    height: float
    titles: Sequence[tuple[float, str]]
    boxes: Sequence[Box]
    curves: Sequence[Curve]


def draw(
    columns: Sequence[GraphColumn], edges: Mapping[tuple[str, str], float], most_boxes: int = MOST_BOXES
) -> BusDrawing:
    """Draw a graph.

    Args:
        edges: what passes between two nodes each second, by their keys; from the left to the right.
        most_boxes: boxes of a column.
    """
    columns = [column for column in columns if column.nodes]
    folded: list[list[GraphNode]] = []
    names: dict[str, str] = {}
    for number, column in enumerate(columns):
        nodes = _fold(column, number, most_boxes)
        names |= {node.key: node.key for node in nodes}
        names |= {node.key: nodes[-1].key for node in column.nodes if node.key not in names}
        folded.append([_short(node) for node in nodes])
    weights: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (source, target), rate in edges.items():
        if source in names and target in names:
            weights[names[source], names[target]] += rate
    return _place([column.title for column in columns], folded, weights)


def _fold(column: GraphColumn, number: int, most: int) -> list[GraphNode]:
    """Keep the nodes of a column that matter most, in their order, and one for the rest."""
    if len(column.nodes) <= most:
        return [*column.nodes]
    by_importance = sorted(column.nodes, key=lambda node: node.importance, reverse=True)
    kept = {node.key for node in by_importance[: most - 1]}
    rest = [node for node in column.nodes if node.key not in kept]
    head = GraphRow(
        f"{len(rest):,} more", column.rest_address, about=", ".join(cut(node.head.name, 60) for node in rest[:20])
    )
    folded = GraphNode(f"rest-{number}", rest[0].kind, head, weight=sum(node.weight for node in rest))
    return [*(node for node in column.nodes if node.key in kept), folded]


def _short(node: GraphNode) -> GraphNode:
    """Leave out the calmest rows of a box that has too many."""
    if len(node.rows) <= MOST_ROWS:
        return node
    by_tone = sorted(node.rows, key=lambda row: RISING_TONES.index(row.tone), reverse=True)
    kept = [id(row) for row in by_tone[: MOST_ROWS - 1]]
    rows = [row for row in node.rows if id(row) in kept]
    more = GraphRow(f"{len(node.rows) - len(rows):,} more", node.head.address)
    return GraphNode(node.key, node.kind, node.head, [*rows, more], node.weight)


def _place(
    titles: Sequence[str], columns: Sequence[Sequence[GraphNode]], weights: Mapping[tuple[str, str], float]
) -> BusDrawing:
    heights = {node.key: HEAD_HEIGHT + ROW_HEIGHT * len(node.rows) for column in columns for node in column}
    layers = arrange([[node.key for node in column] for column in columns], heights, weights)
    lefts = [MARGIN + number * (BOX_WIDTH + COLUMN_GAP) for number in range(len(columns))]
    top = MARGIN + HEAD_HEIGHT
    boxes = {
        node.key: _box(node, lefts[number], top + layers.tops[node.key], heights[node.key])
        for number, column in enumerate(columns)
        for node in column
    }

    def out_of(place: Place) -> tuple[float, float]:
        """The point at which a curve leaves."""
        if isinstance(place, Bend):
            return lefts[place.layer] + BOX_WIDTH, top + layers.tops[place] + BEND_HEIGHT / 2
        return boxes[place].left + BOX_WIDTH, boxes[place].top + HEAD_HEIGHT / 2

    def into(place: Place) -> tuple[float, float]:
        x, y = out_of(place)
        return x - BOX_WIDTH, y

    curves = [
        Curve(_curve(out_of(source), into(target)), _width(rate), rate <= 0) for source, target, rate in layers.pieces
    ]
    bends = dict.fromkeys(source for source, _, _ in layers.pieces if isinstance(source, Bend))
    for bend in bends:
        rate = sum(piece.weight for piece in layers.pieces if piece.source == bend)
        (x, y), (end, _) = into(bend), out_of(bend)
        curves.append(Curve(f"M{x:.1f} {y:.1f}H{end:.1f}", _width(rate), rate <= 0))
    return BusDrawing(
        width=(lefts[-1] + BOX_WIDTH + MARGIN) if lefts else 0.0,
        height=top + layers.height + MARGIN,
        titles=[*zip(lefts, titles, strict=True)],
        boxes=[*boxes.values()],
        curves=sorted(curves, key=lambda curve: curve.width),
    )


def _box(node: GraphNode, left: float, top: float, height: float) -> Box:
    rows = [DrawnRow(row, top + HEAD_HEIGHT + number * ROW_HEIGHT) for number, row in enumerate(node.rows)]
    return Box(node, left, top, height, rows)


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    bow = max(abs(x2 - x1) / 2, 30.0)
    return f"M{x1:.1f} {y1:.1f}C{x1 + bow:.1f} {y1:.1f} {x2 - bow:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"


def _width(rate: float) -> float:
    """The pixels of a curve: each tenfold rate makes it thicker by the same."""
    return round(min(1.5 + 1.3 * math.log10(1 + 10 * rate), 7.0), 1) if rate > 0 else 1.0


def texts(drawing: BusDrawing) -> Iterator[GraphRow]:
    """Iterate over all lines of a drawing, box by box."""
    for box in drawing.boxes:
        yield box.node.head
        yield from box.node.rows
