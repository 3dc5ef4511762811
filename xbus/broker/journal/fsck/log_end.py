"""Compares the end of the log, and its table of contents, with the envelopes that have positions."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, block_of, read_contents_end
from xbus.broker.journal.log.reading import read_head

_CONTENTS, _ENVELOPE, _EVENT = model.contents.c, model.envelope.c, model.event.c
_LISTED = (
    sa.select(model.contents, model.graph.c.event_type_id)
    .join(model.graph, model.graph.c.id == _CONTENTS.graph_id)
    .where(_CONTENTS.block == sa.bindparam("block"))
)
_THERE = (
    sa.select(
        *(_ENVELOPE.position, _EVENT.graph_id, _EVENT.event_type_id, sa.func.count().label("events")),
        sa.func.sum(sa.func.coalesce(_EVENT["items"], 0)).label("items"),
    )
    .join(model.event, _EVENT.envelope_id == _ENVELOPE.id)
    .where(_ENVELOPE.position.between(sa.bindparam("first"), sa.bindparam("last")))
    .group_by(_ENVELOPE.position, _EVENT.graph_id, _EVENT.event_type_id)
)
_WHOLE = sa.select(sa.func.count()).where(
    _ENVELOPE.position.between(sa.bindparam("first"), sa.bindparam("last")), _ENVELOPE.pruned_at.is_(None)
)
_NEXT_LISTED = sa.select(sa.func.min(_CONTENTS.block)).where(_CONTENTS.block >= sa.bindparam("low"))
_NEXT_THERE = sa.select(sa.func.min(_ENVELOPE.position)).where(_ENVELOPE.position >= sa.bindparam("first"))


def check_log(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check the end of the log, then its table of contents block by block."""
    with connection.begin():
        yield from _check_ends(connection)
    block: int | None = 0
    while block is not None:
        with connection.begin():
            block = _next_block(connection, block)
            if block is not None:
                yield from _check_block(connection, block)
                block += 1
        tell(0)


def _check_ends(connection: sa.Connection) -> Iterator[Fault]:
    head, listed = read_head(connection), read_contents_end(connection)
    newest = connection.execute(sa.select(sa.func.max(_ENVELOPE.position))).scalar_one() or 0
    lowest = connection.execute(sa.select(sa.func.min(_ENVELOPE.position))).scalar_one()
    if newest > head:
        yield _fault("head", "", f"the log ends at position {head}, and an envelope has position {newest}")
    if lowest is not None and lowest < 1:
        yield _fault("envelope", f"position {lowest}", "the log begins with position 1")
    # Where all from the first to the newest is there, retention never removed anything.
    if newest < head and _never_pruned(connection, newest):
        yield _fault("head", "", f"the log ends at position {head}, and the newest envelope has position {newest}")
    if listed > head or listed < 0 or listed % BLOCK_POSITIONS:
        yield _fault("contents_end", "", f"it names position {listed}, which is no end of a block up to {head}")
    beyond = sa.select(_CONTENTS.block, _CONTENTS.graph_id).where(
        sa.or_(_CONTENTS.block >= block_of(head + BLOCK_POSITIONS), _CONTENTS.block < 0)
    )
    for block, graph_id in connection.execute(beyond.limit(100)):
        yield _fault("contents", f"{graph_id}, {block}", f"the log has no block {block}")


def _never_pruned(connection: sa.Connection, newest: int) -> bool:
    count = sa.select(sa.func.count(_ENVELOPE.position)).where(_ENVELOPE.position >= 1, _ENVELOPE.pruned_at.is_(None))
    return newest > 0 and connection.execute(count).scalar_one() == newest


def _next_block(connection: sa.Connection, low: int) -> int | None:
    """Give the next block that is listed, or of which anything is there, in the listed part of the log."""
    listed = connection.execute(_NEXT_LISTED, {"low": low}).scalar_one()
    position = connection.execute(_NEXT_THERE, {"first": low * BLOCK_POSITIONS + 1}).scalar_one()
    found = [block for block in (listed, None if position is None else block_of(position)) if block is not None]
    end = read_contents_end(connection)
    return min(found) if found and (min(found) + 1) * BLOCK_POSITIONS <= end else None


@dataclass(slots=True)
class _OfType:
    """The events of a type in a block, summed up."""

    events: int = 0
    items: int = 0
    positions: int = 0


def _check_block(connection: sa.Connection, block: int) -> Iterator[Fault]:
    bounds = {"first": block * BLOCK_POSITIONS + 1, "last": (block + 1) * BLOCK_POSITIONS}
    listed: dict[int, int] = {}
    told: defaultdict[int, _OfType] = defaultdict(_OfType)
    for row in connection.execute(_LISTED, {"block": block}).mappings():
        listed[row["graph_id"]] = bits = int.from_bytes(row["positions"], "little")
        _add(told[row["event_type_id"]], row, bits)
        if bits >> BLOCK_POSITIONS:
            yield _fault("contents", f"{row['graph_id']}, {block}", "it names positions beyond its block")
        if row["oldest_at"] > row["newest_at"]:
            yield _fault("contents", f"{row['graph_id']}, {block}", "its oldest event is newer than its newest")
    there: defaultdict[int, _OfType] = defaultdict(_OfType)
    for row in connection.execute(_THERE, bounds).mappings():
        bit = 1 << (row["position"] - 1) % BLOCK_POSITIONS
        _add(there[row["event_type_id"]], row, bit)
        if not listed.get(row["graph_id"], 0) & bit:
            cause = f"it does not name position {row['position']}, which has events of the graph"
            yield _fault("contents", f"{row['graph_id']}, {block}", cause)
    # Where nothing was removed the table may not say more than is there, either.
    is_whole = connection.execute(_WHOLE, bounds).scalar_one() == BLOCK_POSITIONS
    for type_id in sorted({*told, *there}):
        yield from _compare(block, type_id, told[type_id], there[type_id], is_whole=is_whole)


def _add(to: _OfType, row: Any, bits: int) -> None:
    to.events += int(row["events"])
    to.items += int(row["items"])
    to.positions |= bits


def _compare(block: int, type_id: int, told: _OfType, there: _OfType, *, is_whole: bool) -> Iterator[Fault]:
    for name, says, has in (("events", told.events, there.events), ("items", told.items, there.items)):
        if says < has or (is_whole and says != has):
            cause = f"it says {says} {name} of event type {type_id}, and the log has {has}"
            yield _fault("contents", f"block {block}", cause)
    if is_whole and told.positions & ~there.positions:
        yield _fault("contents", f"block {block}", f"it names positions without events of event type {type_id}")


def _fault(table: str, row: str, cause: str) -> Fault:
    return Fault(FaultCode.LOG_BROKEN, table, row, cause)
