"""Arranges nodes in layers, from left to right: their order, so that few edges cross, and their places.

The order is found by barycentres, as in K. Sugiyama, S. Tagawa, M. Toda, "Methods for Visual Understanding of
Hierarchical System Structures" (1981). An edge over several layers passes through a bend in each layer between, and
edges to the same node share their bends.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
