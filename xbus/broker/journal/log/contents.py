"""The log's table of contents: it finds the events of some graphs without reading what lies between them.

The log is cut into blocks. For each block and each graph a row says which envelopes hold events of the graph. The
broker lists a block some time after its last envelope was sealed, from the oldest block on, so that all up to
``contents_end`` is listed and the rest has to be read.

The table may name too much: an envelope that was removed, or an event that took another graph since. It never names too
little. So it says where to look, and whoever reads the envelope there decides.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.writes import ListBlock, ListedGraph
from xbus.errors import JournalError

BLOCK_POSITIONS = 1024
"""Positions of a block. More make the table smaller, and leave more at the head of the log to be read."""

WINDOW_BLOCKS = 4
"""Blocks whose rows are read at once. More serve a frequent type in fewer statements, and read more for a rare one."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Envelopes that the table of contents names.

    Args:
        positions: theirs, in order.
        upto: all up to here are among them. The place where the search began, where the table does not reach beyond it.
    """

    positions: Sequence[int]
    upto: int


def block_of(position: int) -> int:
    """The number of the block in which a position lies."""
    return (position - 1) // BLOCK_POSITIONS


# -- finding -----------------------------------------------------------------------------------------------------------


def read_contents_end(connection: sa.Connection) -> int:
    """The position up to which all is listed."""
    end: int = connection.execute(_END).scalar_one()
    return end


def find_for_services(connection: sa.Connection, services: Collection[str], after: int, limit: int) -> Listed:
    """Find the next envelopes with events whose graphs lead to one of some services: see :func:`find_listed`."""
    graphs = connection.execute(_LEADING, {"services": list(services)}).scalars().all()
    return find_listed(connection, graphs, after, limit)


def find_listed(
    connection: sa.Connection, graphs: Collection[int], after: int, limit: int, until: int | None = None
) -> Listed:
    """Find the next envelopes with events of some graphs, in the part of the log that is listed.

    It costs a look-up for each graph and some rows for each block that holds such events, however long the log is.

    Args:
        after: a position; what is found lies above it.
        until: the last position that matters; None for all that is listed.
    """
    end = read_contents_end(connection)
    end = end if until is None else min(end, until)
    if end <= after:
        return Listed((), after)
    found: list[int] = []
    low = block_of(after + 1)
    while len(found) < limit:
        block = find_block(connection, graphs, low)
        if block is None or block > block_of(end):
            return Listed(found, end)
        rows = connection.execute(_WINDOW, {"graphs": list(graphs), "low": block, "high": block + WINDOW_BLOCKS - 1})
        ahead = (position for position in _positions(rows, after) if position <= end)
        found += islice(ahead, limit - len(found))
        low = block + WINDOW_BLOCKS
    return Listed(found, found[-1])


def find_newest(
    connection: sa.Connection, graphs: Collection[int], below: int, limit: int, above: int = 0
) -> list[int]:
    """Find the newest envelopes with events of some graphs, newest first: in the listed part of the log and behind it.

    The listed part costs as little as for :func:`find_listed`. The rest of the log is read.

    Args:
        below: a position; what is found lies below it.
        limit: how many positions at the most.
        above: a position; what is found lies above it.
    """
    end = read_contents_end(connection)
    bounds = {"graphs": list(graphs), "above": max(end, above), "below": below, "most": limit}
    found = list(connection.execute(_NEWEST_UNLISTED, bounds).scalars())
    below = min(below, end + 1)
    while len(found) < limit and below - 1 > above:
        high = connection.execute(_LAST_BLOCK, {"graphs": list(graphs), "high": block_of(below - 1)}).scalar_one()
        if high is None:
            break
        low = max(0, high - WINDOW_BLOCKS + 1)
        rows = connection.execute(_WINDOW, {"graphs": list(graphs), "low": low, "high": high})
        behind = [position for position in _positions(rows, above) if position < below]
        found += behind[::-1][: limit - len(found)]
        below = low * BLOCK_POSITIONS + 1
    return found


def count_listed(connection: sa.Connection, graphs: Collection[int], after: int, until: int) -> int:
    """Count the envelopes that the table of contents names for some graphs between two positions, ``until`` included.

    It reads a row for each block and graph there. Some of the envelopes may have been removed since.
    """
    return read_listed(connection, graphs, after, until).bit_count()


def read_listed(connection: sa.Connection, graphs: Collection[int], after: int, until: int) -> int:
    """Read those envelopes as bits: bit 0 stands for the position ``after + 1``, bit 1 for the next, and so on."""
    if until <= after:
        return 0
    low, high = block_of(after + 1), block_of(until)
    found: dict[int, int] = defaultdict(int)
    for block, bitmap in connection.execute(_WINDOW, {"graphs": list(graphs), "low": low, "high": high}):
        found[block] |= int.from_bytes(bitmap, "little")
    joined = b"".join(found.get(block, 0).to_bytes(BLOCK_POSITIONS // 8, "little") for block in range(low, high + 1))
    bits = int.from_bytes(joined, "little") >> (after - low * BLOCK_POSITIONS)
    return bits & ((1 << (until - after)) - 1)


def find_block(connection: sa.Connection, graphs: Collection[int], block: int) -> int | None:
    """The first block from one on that holds events of some graphs; None where there is none."""
    found: int | None = connection.execute(_NEXT_BLOCK, {"graphs": list(graphs), "low": block}).scalar_one()
    return found


def _positions(rows: Iterable[sa.Row[int, bytes]], after: int) -> Iterator[int]:
    """The positions above ``after`` that rows of the table name, in order."""
    blocks: dict[int, int] = defaultdict(int)
    for block, bitmap in rows:
        blocks[block] |= int.from_bytes(bitmap, "little")
    for block in sorted(blocks):
        # A search in digits costs less than a step by the lowest bit, which makes large numbers.
        digits = f"{blocks[block]:b}"[::-1]
        first = block * BLOCK_POSITIONS + 1
        place = digits.find("1", max(0, after + 1 - first))
        while place >= 0:
            yield first + place
            place = digits.find("1", place + 1)


_CONTENTS, _ENVELOPE, _EVENT, _NODE = model.contents.c, model.envelope.c, model.event.c, model.node.c
_GRAPHS: sa.BindParameter[Any] = sa.bindparam("graphs", expanding=True)
_END = sa.select(model.contents_end.c.position)
_LEADING = (
    sa.select(_NODE.graph_id)
    .join(model.service, model.service.c.id == _NODE.service_id)
    .where(model.service.c.key.in_(sa.bindparam("services", expanding=True)))
    .distinct()
)
_NEXT_OF_GRAPH = (
    sa.select(_CONTENTS.block)
    .where(_CONTENTS.graph_id == model.graph.c.id, _CONTENTS.block >= sa.bindparam("low"))
    .order_by(_CONTENTS.block)
    .limit(1)
    .scalar_subquery()
)
_NEXT_BLOCK = sa.select(sa.func.min(_NEXT_OF_GRAPH)).where(model.graph.c.id.in_(_GRAPHS))
"""A look-up in the primary key for each graph: the smallest of many rows would cost as much as there are rows."""

_LAST_OF_GRAPH = (
    sa.select(_CONTENTS.block)
    .where(_CONTENTS.graph_id == model.graph.c.id, _CONTENTS.block <= sa.bindparam("high"))
    .order_by(_CONTENTS.block.desc())
    .limit(1)
    .scalar_subquery()
)
_LAST_BLOCK = sa.select(sa.func.max(_LAST_OF_GRAPH)).where(model.graph.c.id.in_(_GRAPHS))
_NEWEST_UNLISTED = (
    sa.select(_ENVELOPE.position)
    .where(
        _ENVELOPE.position > sa.bindparam("above"),
        _ENVELOPE.position < sa.bindparam("below"),
        sa.exists().where(_EVENT.envelope_id == _ENVELOPE.id, _EVENT.graph_id.in_(_GRAPHS)),
    )
    .order_by(_ENVELOPE.position.desc())
    .limit(sa.bindparam("most"))
)

_WINDOW = sa.select(_CONTENTS.block, _CONTENTS.positions).where(
    _CONTENTS.graph_id.in_(_GRAPHS), _CONTENTS.block.between(sa.bindparam("low"), sa.bindparam("high"))
)


# -- listing -----------------------------------------------------------------------------------------------------------


def read_unlisted(connection: sa.Connection) -> ListBlock | None:
    """Read the rows of the table of contents for the next block; None until it is full.

    Blocks without envelopes are passed all at once.
    """
    end, head = read_contents_end(connection), read_head(connection)
    first = connection.execute(_FIRST, {"after": end}).scalar_one() or head + 1
    block = block_of(min(first, head + 1))
    start, until = block * BLOCK_POSITIONS, (block + 1) * BLOCK_POSITIONS
    if until <= head:
        return ListBlock(end, until, _read_graphs(connection, block))
    return None if start <= end else ListBlock(end, start, ())


def _read_graphs(connection: sa.Connection, block: int) -> list[ListedGraph]:
    rows = connection.execute(_BLOCK, _bounds(block))
    return [
        ListedGraph(graph_id, block, _bitmap_of(places), events, items, oldest_at, newest_at)
        for graph_id, places, events, items, oldest_at, newest_at in rows
    ]


def _bitmap_of(places: str) -> bytes:
    """Make the bitmap of places in a block, as the database lists them: ``3,17,4``, with some perhaps twice."""
    bitmap = bytearray(BLOCK_POSITIONS // 8)
    for place in map(int, places.split(",")):
        bitmap[place >> 3] |= 1 << (place & 7)
    return bytes(bitmap.rstrip(b"\0"))


def _bit(position: int) -> int:
    return 1 << (position - 1) % BLOCK_POSITIONS


def _bitmap(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _bounds(block: int) -> dict[str, int]:
    return {"first": block * BLOCK_POSITIONS + 1, "last": (block + 1) * BLOCK_POSITIONS}


def list_blocks(connection: sa.Connection, group: Sequence[ListBlock]) -> None:
    """Write what was read of blocks into the table of contents.

    Raises:
        JournalError: the table ends elsewhere by now.
    """
    for write in group:
        moved = connection.execute(_MOVE_END, {"old": write.after, "new": write.until})
        if moved.rowcount != 1:
            raise JournalError(f"the table of contents does not end at position {write.after} any more")
        # All of a block may have been removed since it was read; then nobody would remove its rows.
        if write.graphs and _has_events(connection, write.graphs[0].block):
            _put(connection, write.graphs)


def note_graphs(connection: sa.Connection, taken: Sequence[tuple[UUID, int]]) -> None:
    """List sealed events under the graphs that they took later, also if their blocks are not listed yet.

    1. The next block is read.
    2. An event of it takes another graph.
    3. The block is listed as it was read.

    Args:
        taken: events, with the ids of their graphs.
    """
    graphs = dict(taken)
    rows = connection.execute(_PLACES, {"events": list(graphs)}).all()
    _put(
        connection,
        [
            ListedGraph(graphs[event_id], block_of(position), _bitmap(_bit(position)), 0, 0, sealed_at, sealed_at)
            for event_id, position, sealed_at in rows
        ],
    )


def _put(connection: sa.Connection, found: Sequence[ListedGraph]) -> None:
    """Insert rows, or add what they say to those that are there."""
    merged: dict[tuple[int, int], ListedGraph] = {}
    there = connection.execute(_OF_BLOCKS, {"blocks": list({graph.block for graph in found})}).all()
    keys = {(graph.graph_id, graph.block) for graph in found}
    known = [ListedGraph(*row) for row in there if (row.graph_id, row.block) in keys]
    for graph in (*known, *found):
        key = graph.graph_id, graph.block
        merged[key] = _merge(merged[key], graph) if key in merged else graph
    if known:
        connection.execute(_REMOVE, [{"of_graph": graph.graph_id, "of_block": graph.block} for graph in known])
    if merged:
        connection.execute(_INSERT, [asdict(graph) for graph in merged.values()])


def _merge(one: ListedGraph, other: ListedGraph) -> ListedGraph:
    bits = int.from_bytes(one.positions, "little") | int.from_bytes(other.positions, "little")
    return ListedGraph(
        one.graph_id,
        one.block,
        _bitmap(bits),
        one.events + other.events,
        one.items + other.items,
        min(one.oldest_at, other.oldest_at),
        max(one.newest_at, other.newest_at),
    )


# -- removing ----------------------------------------------------------------------------------------------------------


def forget_removed(connection: sa.Connection, positions: Collection[int]) -> None:
    """Remove the rows of blocks of which no event is left.

    Args:
        positions: those of envelopes whose events were just removed.
    """
    for block in {block_of(position) for position in positions}:
        if not _has_events(connection, block):
            connection.execute(_FORGET, {"of_block": block})


def _has_events(connection: sa.Connection, block: int) -> bool:
    return connection.execute(_ANY_EVENT, _bounds(block)).first() is not None


_IN_BLOCK = _ENVELOPE.position.between(sa.bindparam("first"), sa.bindparam("last"))
_FIRST = sa.select(sa.func.min(_ENVELOPE.position)).where(_ENVELOPE.position > sa.bindparam("after"))
_PLACE = sa.cast((_ENVELOPE.position - 1) % BLOCK_POSITIONS, sa.String)
_BLOCK = (
    # What is archived is listed too: it may come back.
    sa.select(
        _EVENT.graph_id,
        sa.func.aggregate_strings(_PLACE, ","),
        sa.func.count(),
        sa.func.coalesce(sa.func.sum(_EVENT["items"]), 0),
        sa.func.min(_ENVELOPE.closed_at),
        sa.func.max(_ENVELOPE.closed_at),
    )
    .join(model.event, _EVENT.envelope_id == _ENVELOPE.id)
    .where(_IN_BLOCK)
    .group_by(_EVENT.graph_id)
)
_ANY_EVENT = sa.select(_EVENT.id).join(model.envelope, _EVENT.envelope_id == _ENVELOPE.id).where(_IN_BLOCK).limit(1)
_PLACES = (
    sa.select(_EVENT.id, _ENVELOPE.position, _ENVELOPE.closed_at)
    .join(model.envelope, _EVENT.envelope_id == _ENVELOPE.id)
    .where(_EVENT.id.in_(sa.bindparam("events", expanding=True)), _ENVELOPE.position.is_not(None))
)
_OF_BLOCKS = sa.select(model.contents).where(_CONTENTS.block.in_(sa.bindparam("blocks", expanding=True)))
_MOVE_END = (
    sa.update(model.contents_end)
    .where(model.contents_end.c.position == sa.bindparam("old"))
    .values(position=sa.bindparam("new"))
)
_INSERT = sa.insert(model.contents)
_REMOVE = sa.delete(model.contents).where(
    _CONTENTS.graph_id == sa.bindparam("of_graph"), _CONTENTS.block == sa.bindparam("of_block")
)
_FORGET = sa.delete(model.contents).where(_CONTENTS.block == sa.bindparam("of_block"))
