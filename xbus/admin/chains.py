"""Envelopes that were made of each other, as a tree of lines or as a picture in SVG; pure.

In the picture each generation is a column, and each envelope a box beside the one that it was made of.
"""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID
from xml.sax.saxutils import escape

from xbus.admin.output import STATE, Column, Output, moment
from xbus.broker.journal.operations.envelopes.chains import ChainLink, Making


def lines(links: Sequence[ChainLink], wanted: UUID, ids: Mapping[UUID, str], output: Output) -> Iterator[str]:
    """Write a line for each envelope, those that were made of it indented below it.

    Args:
        wanted: gets a mark.
        ids: the short id of each envelope; its whole id where it has none.
    """
    rows = []
    for depth, link in in_tree(links):
        mark = "*" if link.envelope_id == wanted else " "
        name = f"{'  ' * depth}{mark} {ids.get(link.envelope_id, str(link.envelope_id))}"
        made_by = told_way(link)
        rows.append(
            {
                "ENVELOPE": name,
                "TYPES": ", ".join(link.types),
                "MADE BY": made_by,
                Column("ITEMS", to_right=True): link.items,
                Column("POSITION", to_right=True): link.position,
                STATE: link.state,
                Column("ENDED", wide_only=True): moment(link.closed_at),
            }
        )
    return output.table(rows)


def told_way(link: ChainLink) -> str:
    """Say how an envelope came to be, and which bulk workers made something of it."""
    way = link.emitter if link.way in (Making.SENT, Making.NODE, Making.BOT) else f"{link.way} ({link.emitter})"
    return f"{way}, to {', '.join(link.by_bulk)}" if link.by_bulk else way


def in_tree(links: Sequence[ChainLink]) -> Iterator[tuple[int, ChainLink]]:
    """Iterate over envelopes with their depths, each behind the one that it was made of."""
    known = {link.envelope_id for link in links}
    children: dict[UUID | None, list[ChainLink]] = {}
    for link in links:
        children.setdefault(link.parent_id if link.parent_id in known else None, []).append(link)
    ahead = [(0, link) for link in reversed(children.get(None, []))]
    while ahead:
        depth, link = ahead.pop()
        yield depth, link
        ahead += [(depth + 1, child) for child in reversed(children.get(link.envelope_id, []))]


WIDTH, HEIGHT = 220, 54
GAP_X, GAP_Y, MARGIN = 60, 14, 16
LINE = 15
MOST_CHARACTERS = 32
"""The characters of a line that fit into a box."""

STYLE = (
    "rect{fill:#f6f8fa;stroke:#57606a}"
    "rect.wanted{fill:#ddf4ff;stroke:#0969da;stroke-width:2}"
    "path{fill:none;stroke:#57606a}"
    "text{font:12px sans-serif;fill:#24292f}"
)


def draw(links: Sequence[ChainLink], wanted: UUID) -> str:
    """Draw envelopes.

    Args:
        wanted: stands out.
    """
    places: dict[UUID, tuple[int, int]] = {}
    row = -1
    former = -1
    for depth, link in in_tree(links):
        # The first that was made of an envelope stands beside it.
        row += depth <= former or row < 0
        former = depth
        places[link.envelope_id] = (MARGIN + depth * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y))
    right = max(x for x, _ in places.values()) + WIDTH + MARGIN
    bottom = max(y for _, y in places.values()) + HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right}" height="{bottom}" viewBox="0 0 {right} {bottom}">',
        f"<style>{STYLE}</style>",
        *(_edge(places[link.parent_id], places[link.envelope_id]) for link in links if link.parent_id in places),
        *(part for link in links for part in _box(link, places[link.envelope_id], link.envelope_id == wanted)),
        "</svg>",
    ]
    return "\n".join(parts)


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x, y = start[0] + WIDTH, start[1] + HEIGHT // 2
    to_x, to_y = end[0], end[1] + HEIGHT // 2
    middle = (x + to_x) // 2
    return f'<path d="M{x} {y} H{middle} V{to_y} H{to_x}"/>'


def _box(link: ChainLink, place: tuple[int, int], is_wanted: bool) -> Iterator[str]:
    x, y = place
    marked = ' class="wanted"' if is_wanted else ""
    items = "" if link.items is None else f", {link.items} items"
    number = link.state.value if link.position is None else f"position {link.position}"
    yield f"<g><title>{link.envelope_id}</title>"
    yield f'<rect{marked} x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4"/>'
    for line, text in enumerate((", ".join(link.types), told_way(link), f"{number}{items}"), start=1):
        shown = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
        yield f'<text x="{x + 8}" y="{y + 2 + line * LINE}">{escape(shown)}</text>'
    yield "</g>"
