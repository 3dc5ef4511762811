"""Draws the graph of an event type from left to right, also one that is still wrong; pure.

Each node lies right of all that lead to it. An edge over several columns gets a lane of its own in each, so that it
never runs through a node (the layered drawing of Sugiyama, Tagawa and Toda, 1981, with two sweeps by barycentres).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

WIDTH, HEIGHT = 190, 50
"""Of a node, in pixels."""

LANE = 18
"""Height of an edge that passes a column, in pixels."""

GAP, COLUMN_GAP, MARGIN = 22, 70, 28

SWEEPS = 4
"""So often the columns are ordered by their neighbours. More change little and cost time."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
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
class Box:
    """A node at its place; ``x`` and ``y`` are its upper left corner."""

    node: DrawnNode
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and lines, in pixels; each line is a path of SVG."""

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[str]

    @property
    def words(self) -> str:
        """The graph in words, for who can't see it."""
        told = [
            f"{box.node.name} leads to {', '.join(box.node.to)}" if box.node.to else f"{box.node.name} ends the line"
            for box in self.boxes
        ]
        return "; ".join(told) or "It leads nowhere."


@dataclass(slots=True)
class _Cell:
    """A place in a column: of a node, or of an edge that passes."""

    column: int
    node: DrawnNode | None = None
    before: list["_Cell"] = field(default_factory=list)
    behind: list["_Cell"] = field(default_factory=list)
    y: float = 0

    @property
    def height(self) -> int:
        return LANE if self.node is None else HEIGHT

    @property
    def middle(self) -> int:
        return round(self.y + self.height / 2)

    @property
    def left(self) -> int:
        return MARGIN + self.column * (WIDTH + COLUMN_GAP)


def draw(nodes: Iterable[DrawnNode]) -> Drawing:
    """Find a place for each node and each line."""
    by_name = {node.name: node for node in nodes}
    edges = [(node.name, child) for node in by_name.values() for child in dict.fromkeys(node.to) if child in by_name]
    columns = _columns(by_name, edges)
    cells = {name: _Cell(columns[name], node) for name, node in by_name.items()}
    chains = [_chain(cells[parent], cells[child]) for parent, child in edges if columns[parent] < columns[child]]
    backward = [(cells[parent], cells[child]) for parent, child in edges if columns[parent] >= columns[child]]
    table = _table([*cells.values(), *(cell for chain in chains for cell in chain[1:-1])])
    _order(table)
    height = _place(table)
    starts = [cell for cell in cells.values() if not cell.before]
    lines = [f"M{cell.left - MARGIN + 4} {cell.middle}H{cell.left - 2}" for cell in starts]
    lines += [_line(chain) for chain in chains] + [_backward(*pair) for pair in backward]
    width = 2 * MARGIN + len(table) * WIDTH + max(0, len(table) - 1) * COLUMN_GAP
    boxes = [Box(cell.node, cell.left, round(cell.y)) for cell in cells.values() if cell.node is not None]
    return Drawing(width if boxes else 0, height if boxes else 0, boxes, lines)


def _columns(nodes: Mapping[str, DrawnNode], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Count the steps of the longest way to each node; a circle is cut after as many steps as there are nodes."""
    columns = dict.fromkeys(nodes, 0)
    for _ in nodes:
        moved = False
        for parent, child in edges:
            if columns[child] <= columns[parent] and columns[parent] + 1 < len(nodes):
                columns[child], moved = columns[parent] + 1, True
        if not moved:
            break
    used = {column: number for number, column in enumerate(sorted(set(columns.values())))}
    return {name: used[column] for name, column in columns.items()}


def _chain(parent: _Cell, child: _Cell) -> list[_Cell]:
    """Connect two nodes by cells in the columns between them."""
    chain = [parent, *(_Cell(column) for column in range(parent.column + 1, child.column)), child]
    for one, next_ in pairwise(chain):
        one.behind.append(next_)
        next_.before.append(one)
    return chain


def _table(cells: Iterable[_Cell]) -> list[list[_Cell]]:
    table: list[list[_Cell]] = []
    for cell in sorted(cells, key=lambda each: each.column):
        if cell.column == len(table):
            table.append([])
        table[cell.column].append(cell)
    return table


def _order(table: list[list[_Cell]]) -> None:
    """Sort each column by the mean place of its neighbours, from left to right and back."""
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in table if forward else reversed(table):
            places = {id(cell): number for near in table for number, cell in enumerate(near)}
            means = {
                id(cell): sum(places[id(each)] for each in near) / len(near) if near else places[id(cell)]
                for cell in column
                for near in [cell.before if forward else cell.behind]
            }
            column.sort(key=lambda cell: means[id(cell)])


def _place(table: list[list[_Cell]]) -> int:
    """Stack the cells of each column around one middle; give the height of all."""
    heights = [sum(cell.height for cell in column) + GAP * (len(column) - 1) for column in table]
    tallest = max(heights, default=0)
    for column, height in zip(table, heights, strict=True):
        y = MARGIN / 2 + (tallest - height) / 2
        for cell in column:
            cell.y = y
            y += cell.height + GAP
    return tallest + MARGIN


def _line(chain: Sequence[_Cell]) -> str:
    """Write a line from the right side of the first cell to the left side of the last one."""
    x, y = chain[0].left + WIDTH, chain[0].middle
    path = f"M{x} {y}"
    for cell in chain[1:]:
        end = cell.left - (2 if cell.node is not None else 0)
        bend = (end - x) // 2
        path += f"C{x + bend} {y} {end - bend} {cell.middle} {end} {cell.middle}"
        if cell.node is None:
            path += f"H{cell.left + WIDTH}"
        x, y = cell.left + WIDTH, cell.middle
    return path


def _backward(parent: _Cell, child: _Cell) -> str:
    """Write a line of a circle, which goes above both."""
    x, y, end, top = parent.left + WIDTH, parent.middle, child.left - 2, round(min(parent.y, child.y)) - 12
    return f"M{x} {y}C{x + 40} {top} {end - 40} {top} {end} {child.middle}"
