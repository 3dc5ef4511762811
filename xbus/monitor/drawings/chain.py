"""Draws what was made of what: envelopes as boxes, each generation a column to the right of the one before; pure."""

from collections.abc import Sequence
from uuid import UUID

from xbus.admin.chains import in_tree, told_way
from xbus.broker.journal.operations.envelopes.chains import ChainLink
from xbus.monitor.drawings.bus_graph import BusDrawing, GraphColumn, GraphNode, GraphRow, draw


def draw_chain(links: Sequence[ChainLink], wanted: UUID) -> BusDrawing:
    """Draw envelopes that were made of each other.

    Args:
        wanted: stands out.
    """
    generations: list[list[GraphNode]] = []
    for depth, link in in_tree(links):
        if depth == len(generations):
            generations.append([])
        generations[depth].append(_box(link, is_wanted=link.envelope_id == wanted))
    columns = [GraphColumn("Made of it" if depth else "First", nodes) for depth, nodes in enumerate(generations)]
    edges = {(str(link.parent_id), str(link.envelope_id)): 1.0 for link in links if link.parent_id is not None}
    return draw(columns, edges)


def _box(link: ChainLink, *, is_wanted: bool) -> GraphNode:
    types, way = ", ".join(link.types), told_way(link)
    number = link.state.value if link.position is None else f"position {link.position}"
    items = "" if link.items is None else f", {link.items:,} items"
    about = f"{'this envelope' if is_wanted else f'envelope {link.envelope_id}'}: {types}; {way}; {number}{items}"
    address = f"/envelopes/{link.envelope_id}"
    head = GraphRow(types, None if is_wanted else address, about=about)
    # One that stands out matters most, so that it is never folded.
    rows = (GraphRow(way), GraphRow(f"{number}{items}"))
    return GraphNode(str(link.envelope_id), "wanted" if is_wanted else "envelope", head, rows, weight=float(is_wanted))
