"""Draws the graph of an event type from left to right, also one that is still wrong.

Each node stands right of all that lead to it. Edges of a circle, which no right graph has, go back above the nodes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xbus.monitor.drawings.layers import BEND_HEIGHT, Bend, Layers, Place, arrange

WIDTH, HEIGHT = 190.0, 50.0
"""Of a node, in pixels."""

COLUMN_GAP, MARGIN = 70.0, 28.0


@dataclass(frozen=True, slots=True)
class TypeNode:
    """A node to draw.

    Args:
        kind: ``worker``, ``consumer``, or empty where nobody knows it yet.
        to: the names of the nodes behind it; those that do not exist are left out.
    """

    name: str
    service: str
    kind: str
    to: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TypeBox:
    """A node at its place; ``left`` and ``top`` are in pixels."""

    node: TypeNode
    left: float
    top: float


@dataclass(frozen=True, slots=True)
class TypeDrawing:
    """Boxes and lines, in pixels.

    Args:
        tips: lines that end at a node, as data of paths (SVG 2, chapter 9).
        lines: parts of lines on their way.
    """

    width: float
    height: float
    boxes: Sequence[TypeBox]
    tips: Sequence[str]
    lines: Sequence[str]

    @property
    def words(self) -> str:
        """The graph in words, for who can't see it."""
        told = [
            f"{box.node.name} leads to {', '.join(box.node.to)}" if box.node.to else f"{box.node.name} ends the line"
            for box in self.boxes
        ]
        return "; ".join(told) or "It leads nowhere."


def draw_type(nodes: Iterable[TypeNode]) -> TypeDrawing:
    """Find a place for each node and each line."""
    by_name = {node.name: node for node in nodes}
    edges = {(node.name, child): 1.0 for node in by_name.values() for child in node.to if child in by_name}
    columns = _columns(by_name, edges)
    layers = [[name for name in by_name if columns[name] == number] for number in range(len({*columns.values()}))]
    forward = {(one, other): weight for (one, other), weight in edges.items() if columns[one] < columns[other]}
    return _Canvas(arrange(layers, dict.fromkeys(by_name, HEIGHT), forward), columns).draw(by_name, edges)


def _columns(nodes: Collection[str], edges: Collection[tuple[str, str]]) -> dict[str, int]:
    """Count the steps of the longest way to each node; as many steps as nodes end a circle."""
    columns = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for parent, child in edges:
            if columns[child] <= columns[parent] < len(columns) - 1:
                columns[child] = columns[parent] + 1
    used = {column: number for number, column in enumerate(sorted(set(columns.values())))}
    return {name: used[column] for name, column in columns.items()}


class _Canvas:
    """Turns layers into places on the drawing.

    Args:
        layers: the nodes with their heights.
        columns: the layer of each node.
    """

    def __init__(self, layers: Layers, columns: Mapping[str, int]) -> None:
        self._layers = layers
        self._columns = columns

    def draw(self, nodes: Mapping[str, TypeNode], edges: Collection[tuple[str, str]]) -> TypeDrawing:
        """Draw nodes and edges."""
        if not nodes:
            return TypeDrawing(0, 0, (), (), ())
        pieces = self._layers.pieces
        tips = [self._start(name) for name in nodes if name not in {child for _, child in edges}]
        tips += [self._curve(source, target) for source, target, _ in pieces if isinstance(target, str)]
        tips += [self._back(*edge) for edge in edges if self._columns[edge[0]] >= self._columns[edge[1]]]
        lines = [self._curve(source, target) for source, target, _ in pieces if isinstance(target, Bend)]
        lines += [self._pass(each) for each in dict.fromkeys(one for one, _, _ in pieces if isinstance(one, Bend))]
        number = max(self._columns.values()) + 1
        width = 2 * MARGIN + number * WIDTH + (number - 1) * COLUMN_GAP
        boxes = [TypeBox(node, self._left(name), self._top(name)) for name, node in nodes.items()]
        return TypeDrawing(width, self._layers.height + 2 * MARGIN, boxes, tips, lines)

    def _left(self, place: Place) -> float:
        column = place.layer if isinstance(place, Bend) else self._columns[place]
        return MARGIN + column * (WIDTH + COLUMN_GAP)

    def _top(self, place: Place) -> float:
        return MARGIN + self._layers.tops[place]

    def _middle(self, place: Place) -> float:
        return self._top(place) + (BEND_HEIGHT if isinstance(place, Bend) else HEIGHT) / 2

    def _start(self, name: str) -> str:
        left = self._left(name)
        return f"M{left - MARGIN + 4:.1f} {self._middle(name):.1f}H{left - 2:.1f}"

    def _curve(self, source: Place, target: Place) -> str:
        begin, end = self._left(source) + WIDTH, self._left(target) - (0 if isinstance(target, Bend) else 2)
        bow, up, down = (end - begin) / 2, self._middle(source), self._middle(target)
        return f"M{begin:.1f} {up:.1f}C{begin + bow:.1f} {up:.1f} {end - bow:.1f} {down:.1f} {end:.1f} {down:.1f}"

    def _pass(self, bend: Bend) -> str:
        return f"M{self._left(bend):.1f} {self._middle(bend):.1f}h{WIDTH:.1f}"

    def _back(self, source: str, target: str) -> str:
        begin, end = self._left(source) + WIDTH, self._left(target) - 2
        top = min(self._top(source), self._top(target)) - MARGIN + 4
        up, down = self._middle(source), self._middle(target)
        return f"M{begin:.1f} {up:.1f}C{begin + 45:.1f} {top:.1f} {end - 45:.1f} {top:.1f} {end:.1f} {down:.1f}"
