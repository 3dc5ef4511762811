"""Envelopes that were made of each other, as a tree of lines; pure."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from xbus.admin.output import STATE, Output, moment
from xbus.admin.table import Column
from xbus.broker.journal.operations.envelopes.chains import ChainLink, Making

HEADS = (
    "ENVELOPE",
    "TYPES",
    "MADE BY",
    Column("ITEMS", to_right=True),
    Column("POSITION", to_right=True),
    STATE,
    Column("ENDED", wide_only=True),
)


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
            (name, ", ".join(link.types), made_by, link.items, link.position, link.state, moment(link.closed_at))
        )
    return output.table(HEADS, rows)


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
