"""Draws graphs in layers from left to right: the bus, what was made of what, and the graph of an event type; pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from xbus.admin.chains import in_tree, told_way
from xbus.admin.output import cut, on_one_line
from xbus.broker.journal.operations.envelopes.chains import ChainLink
from xbus.states import RISING_TONES

SWEEPS = 6
"""Passes over all layers that order them anew. More uncross few edges more."""

GAP = 12.0
"""Pixels between two nodes of a layer."""

TALL = 700.0
"""Pixels of a layer. If one layer is taller, all begin at the top, as only a part of the drawing is in view at a
time."""

BEND_HEIGHT = 6.0
"""Pixels that an edge takes where it passes a layer."""


class Bend(NamedTuple):
    """The point where edges to a node pass a layer between."""

    target: str
    layer: int


Place = str | Bend
"""A node by its name, or a bend."""


class Piece(NamedTuple):
    """A part of an edge, from one layer to the next.

    Args:
        weight: the weights of all edges that take this way.
    """

    source: Place
    target: Place
    weight: float


@dataclass(frozen=True, slots=True)
class Layers:
    """Nodes and bends with their places.

    Args:
        tops: pixels from the top, by place.
        height: pixels of the tallest layer.
    """

    tops: Mapping[Place, float]
    pieces: Sequence[Piece]
    height: float


def arrange(
    nodes: Sequence[Sequence[str]],
    heights: Mapping[str, float],
    edges: Mapping[tuple[str, str], float],
    sweeps: int = SWEEPS,
) -> Layers:
    """Arrange nodes whose layers are known.

    Args:
        nodes: the nodes of each layer, in the order in which they begin.
        heights: pixels of each node.
        edges: the weight of each edge, by source and target. One that leads to the same layer, or back, is left out of
            the order, and goes its way directly.
    """
    layer_of = {name: number for number, names in enumerate(nodes) for name in names}
    pieces = _cut(edges, layer_of)
    columns: list[list[Place]] = [list(names) for names in nodes]
    for bend in dict.fromkeys(piece.target for piece in pieces if isinstance(piece.target, Bend)):
        columns[bend.layer].append(bend)
    before, behind = _neighbours(pieces, layer_of)
    for number in range(sweeps):
        is_forward = number % 2 == 0
        for column in columns if is_forward else reversed(columns):
            _order(column, before if is_forward else behind, columns)
    sizes = {place: heights[place] if isinstance(place, str) else BEND_HEIGHT for column in columns for place in column}
    tops = _settle(columns, sizes, before, behind)
    lowest = min(tops.values(), default=0.0)
    tops = {place: top - lowest for place, top in tops.items()}
    return Layers(tops, pieces, max((top + sizes[place] for place, top in tops.items()), default=0.0))


def _cut(edges: Mapping[tuple[str, str], float], layer_of: Mapping[str, int]) -> list[Piece]:
    weights: defaultdict[tuple[Place, Place], float] = defaultdict(float)
    for (source, target), weight in edges.items():
        way: list[Place] = [source]
        way += [Bend(target, layer) for layer in range(layer_of[source] + 1, layer_of[target])]
        for one, next_ in zip(way, [*way[1:], target], strict=True):
            weights[one, next_] += weight
    return [Piece(source, target, weight) for (source, target), weight in weights.items()]


Neighbours = Mapping[Place, Sequence[Place]]


def _neighbours(pieces: Collection[Piece], layer_of: Mapping[str, int]) -> tuple[Neighbours, Neighbours]:
    """The places before and behind each place, in the next layers."""
    before: defaultdict[Place, list[Place]] = defaultdict(list)
    behind: defaultdict[Place, list[Place]] = defaultdict(list)
    for source, target, _ in pieces:
        if _layer(source, layer_of) < _layer(target, layer_of):
            before[target].append(source)
            behind[source].append(target)
    return before, behind


def _layer(place: Place, layer_of: Mapping[str, int]) -> int:
    return place.layer if isinstance(place, Bend) else layer_of[place]


def _order(column: list[Place], neighbours: Neighbours, columns: Sequence[Sequence[Place]]) -> None:
    """Sort a layer by the mean rank of each place's neighbours; one without any keeps its rank."""
    ranks = {place: rank / len(each) for each in columns for rank, place in enumerate(each)}

    def barycentre(place: Place) -> float:
        found = neighbours.get(place, ())
        return sum(ranks[each] for each in found) / len(found) if found else ranks[place]

    column.sort(key=barycentre)


def _settle(
    columns: Sequence[Sequence[Place]], sizes: Mapping[Place, float], before: Neighbours, behind: Neighbours
) -> dict[Place, float]:
    """Move each place towards its neighbours, as far as the others of its layer leave room."""
    middles: dict[Place, float] = {}
    for column in columns:
        taken = -(sum(sizes[place] + GAP for place in column) - GAP) / 2
        for place in column:
            middles[place] = taken + sizes[place] / 2
            taken += sizes[place] + GAP
    if max(middles.values(), default=0.0) * 2 > TALL:
        return _stack(columns, sizes)
    for neighbours in (before, behind, before):
        for column in columns:
            wanted = [_mean([middles[each] for each in neighbours.get(place, ())], middles[place]) for place in column]
            for place, middle in zip(column, spread(wanted, [sizes[place] for place in column]), strict=True):
                middles[place] = middle
    return {place: middle - sizes[place] / 2 for place, middle in middles.items()}


def _stack(columns: Sequence[Sequence[Place]], sizes: Mapping[Place, float]) -> dict[Place, float]:
    """Put the places of each layer one below the other, from the top on."""
    tops: dict[Place, float] = {}
    for column in columns:
        taken = 0.0
        for place in column:
            tops[place] = taken
            taken += sizes[place] + GAP
    return tops


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


@dataclass(slots=True)
class _Block:
    """Neighbours in a layer that touch each other: they move together."""

    wanted: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return sum(self.wanted) / len(self.wanted)


def spread(wanted: Sequence[float], sizes: Sequence[float], gap: float = GAP) -> Iterator[float]:
    """Give places in one line that don't overlap, as near as possible to the wanted ones, in the same order.

    It is the regression by the algorithm of adjacent violators: what overlaps becomes a block, which stands where its
    members want to be on the average.

    Args:
        wanted: the wanted middles.
        sizes: the size of each.
    """
    offsets: list[float] = []
    taken = 0.0
    for size in sizes:
        offsets.append(taken + size / 2)
        taken += size + gap
    blocks: list[_Block] = []
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append(_Block([want - offset]))
        while len(blocks) > 1 and blocks[-2].mean >= blocks[-1].mean:
            last = blocks.pop()
            blocks[-1].wanted += last.wanted
    bases = [block.mean for block in blocks for _ in block.wanted]
    return (base + offset for base, offset in zip(bases, offsets, strict=True))


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


def draw_chain(links: Sequence[ChainLink], wanted: UUID) -> BusDrawing:
    """Draw envelopes that were made of each other.

    Args:
        wanted: stands out.
    """
    generations: list[list[GraphNode]] = []
    for depth, link in in_tree(links):
        if depth == len(generations):
            generations.append([])
        generations[depth].append(_link_box(link, is_wanted=link.envelope_id == wanted))
    columns = [GraphColumn("Made of it" if depth else "First", nodes) for depth, nodes in enumerate(generations)]
    edges = {(str(link.parent_id), str(link.envelope_id)): 1.0 for link in links if link.parent_id is not None}
    return draw(columns, edges)


def _link_box(link: ChainLink, *, is_wanted: bool) -> GraphNode:
    types, way = ", ".join(link.types), told_way(link)
    number = link.state.value if link.position is None else f"position {link.position}"
    items = "" if link.items is None else f", {link.items:,} items"
    about = f"{'this envelope' if is_wanted else f'envelope {link.envelope_id}'}: {types}; {way}; {number}{items}"
    address = f"/envelopes/{link.envelope_id}"
    head = GraphRow(types, None if is_wanted else address, about=about)
    # One that stands out matters most, so that it is never folded.
    rows = (GraphRow(way), GraphRow(f"{number}{items}"))
    return GraphNode(str(link.envelope_id), "wanted" if is_wanted else "envelope", head, rows, weight=float(is_wanted))


WIDTH, HEIGHT = 190.0, 50.0
"""Of a node, in pixels."""

TYPE_GAP, TYPE_MARGIN = 70.0, 28.0


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
        width = 2 * TYPE_MARGIN + number * WIDTH + (number - 1) * TYPE_GAP
        boxes = [TypeBox(node, self._left(name), self._top(name)) for name, node in nodes.items()]
        return TypeDrawing(width, self._layers.height + 2 * TYPE_MARGIN, boxes, tips, lines)

    def _left(self, place: Place) -> float:
        column = place.layer if isinstance(place, Bend) else self._columns[place]
        return TYPE_MARGIN + column * (WIDTH + TYPE_GAP)

    def _top(self, place: Place) -> float:
        return TYPE_MARGIN + self._layers.tops[place]

    def _middle(self, place: Place) -> float:
        return self._top(place) + (BEND_HEIGHT if isinstance(place, Bend) else HEIGHT) / 2

    def _start(self, name: str) -> str:
        left = self._left(name)
        return f"M{left - TYPE_MARGIN + 4:.1f} {self._middle(name):.1f}H{left - 2:.1f}"

    def _curve(self, source: Place, target: Place) -> str:
        begin, end = self._left(source) + WIDTH, self._left(target) - (0 if isinstance(target, Bend) else 2)
        bow, up, down = (end - begin) / 2, self._middle(source), self._middle(target)
        return f"M{begin:.1f} {up:.1f}C{begin + bow:.1f} {up:.1f} {end - bow:.1f} {down:.1f} {end:.1f} {down:.1f}"

    def _pass(self, bend: Bend) -> str:
        return f"M{self._left(bend):.1f} {self._middle(bend):.1f}h{WIDTH:.1f}"

    def _back(self, source: str, target: str) -> str:
        begin, end = self._left(source) + WIDTH, self._left(target) - 2
        top = min(self._top(source), self._top(target)) - TYPE_MARGIN + 4
        up, down = self._middle(source), self._middle(target)
        return f"M{begin:.1f} {up:.1f}C{begin + 45:.1f} {top:.1f} {end - 45:.1f} {top:.1f} {end:.1f} {down:.1f}"
