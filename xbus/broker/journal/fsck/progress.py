"""Compares cursors and rows about envelopes and items with the log that they are about."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRows
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.broker.journal.log.contents import BLOCK_POSITIONS, block_of, read_contents_end
from xbus.broker.journal.log.deliveries import OUTPUT_NOT_READY
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Stretch
from xbus.broker.journal.readers.ranges import ReaderRange, read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.steps import KEPT_MOVES
from xbus.states import DeliveryState

MOST_OF_A_QUESTION = 100
"""Rows that are named for each question."""

_CURSOR, _DELIVERY, _ENVELOPE, _EVENT = model.cursor.c, model.delivery.c, model.envelope.c, model.event.c

_WAITS_FOR_WORKER = sa.and_(
    _DELIVERY.state == DeliveryState.WAITING.value,
    # An output is made in one place of the bus, whoever makes it.
    _DELIVERY.code != OUTPUT_NOT_READY,
)


def check_progress(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check the cursors, then each table of rows that name envelopes and items by more than their key."""
    with connection.begin():
        yield from _check_cursors(connection)
        yield from _check_cursors_are_there(connection)
    for table, wrong, cause in _QUESTIONS:
        with connection.begin():
            for key in connection.execute(wrong.limit(MOST_OF_A_QUESTION)):
                yield Fault(FaultCode.PROGRESS_WRONG, table.name, ", ".join(map(str, key)), cause)
        tell(0)


def _check_cursors(connection: sa.Connection) -> Iterator[Fault]:
    head = read_head(connection)
    for row in connection.execute(sa.select(model.cursor)):
        for cause in _cursor_causes(row, head):
            yield Fault(FaultCode.PROGRESS_WRONG, "cursor", str(row.role_id), cause)


def _check_cursors_are_there(connection: sa.Connection) -> Iterator[Fault]:
    wanted = (
        sa.select(model.role.c.id)
        .join(model.service, model.service.c.id == model.role.c.service_id)
        .outerjoin(model.cursor, _CURSOR.role_id == model.role.c.id)
        .where(model.service.c.kind == "consumer", model.role.c.removed_at.is_(None), _CURSOR.role_id.is_(None))
    )
    for role_id in connection.execute(wanted).scalars():
        yield Fault(FaultCode.PROGRESS_WRONG, "cursor", str(role_id), "the consumer role has no cursor")


def _cursor_causes(row: Any, head: int) -> Iterator[str]:
    if row.from_position < 1 or row.position < row.from_position - 1:
        yield f"it begins at position {row.from_position}, and stands at {row.position}"
    if row.until_position is not None and row.until_position < row.from_position:
        yield f"it ends at position {row.until_position}, before it begins"
    if row.position > head:
        yield f"it stands at position {row.position}, and the log ends at {head}"
    above = int.from_bytes(row.done, "little")
    if above & 1 or row.position + above.bit_length() > head:
        yield "what it has settled above its position makes no sense"


class _Question(NamedTuple):
    """A search for wrong rows of a table, by their keys."""

    table: sa.Table
    wrong: NamedRows
    cause: str


def _question(
    table: sa.Table, about: sa.Table, on: sa.ColumnElement[bool], wrong: sa.ColumnElement[bool], cause: str
) -> _Question:
    return _Question(table, sa.select(*table.primary_key.columns).join_from(table, about, on).where(wrong), cause)


def _of_consumers(table: sa.Table) -> _Question:
    role, service = model.role, model.service
    wrong = (
        sa.select(*table.primary_key.columns)
        .join_from(table, role, role.c.id == table.c.role_id)
        .join(service, service.c.id == role.c.service_id)
        .where(service.c.kind != "consumer")
    )
    return _Question(table, wrong, "its role is no consumer")


def _against_its_envelope(wrong: sa.ColumnElement[bool], cause: str) -> _Question:
    return _question(model.delivery, model.envelope, _ENVELOPE.id == _DELIVERY.envelope_id, wrong, cause)


def _of_another_envelope(table: sa.Table) -> _Question:
    wrong = table.c.envelope_id != _EVENT.envelope_id
    return _question(table, model.event, _EVENT.id == table.c.event_id, wrong, "its event is of another envelope")


def _outside_of_its_event(table: sa.Table) -> _Question:
    wrong = sa.or_(table.c.item_index < 0, table.c.item_index >= _EVENT["items"])
    return _question(table, model.event, _EVENT.id == table.c.event_id, wrong, "its item is none of its event")


_QUESTIONS = (
    *map(_of_consumers, (model.cursor, model.delivery, model.parked_item, model.envelope_role)),
    _against_its_envelope(
        _DELIVERY.position.is_distinct_from(_ENVELOPE.position), "its position is not that of its envelope"
    ),
    _against_its_envelope(
        sa.and_(
            _DELIVERY.ordering_key.is_not(None),
            _DELIVERY.ordering_key != sa.func.coalesce(_ENVELOPE.ordering_key, ""),
        ),
        "its ordering key is not that of its envelope",
    ),
    _against_its_envelope(
        sa.or_(_DELIVERY.attempts < 0, _DELIVERY.service_id.is_not(None) != _WAITS_FOR_WORKER),
        "its state, its attempts and the service that it waits for do not go together",
    ),
    *map(_of_another_envelope, (model.reply, model.parked_item, model.failure)),
    *map(_outside_of_its_event, (model.parked_item, model.correction)),
)


# -- readers -----------------------------------------------------------------------------------------------------------
# Compares the places of readers with the log and their history, and their ranges with the ring that they tile.


def check_readers(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check the ranges of each reader in use: a place that is wrong skips items, and nobody else would notice."""
    with connection.begin():
        end = Place(read_head(connection) + 1)
        newest = connection.execute(sa.select(sa.func.max(model.reader_move.c.id))).scalar() or 0
        for entry in read_readers(connection):
            ranges = read_ranges(connection, [entry.id])
            for cause in _tiling_causes([(each.first, each.last) for each in ranges], 0, LAST_HASH):
                yield Fault(FaultCode.PROGRESS_WRONG, "reader", str(entry.id), f"its ranges {cause}")
            for each in ranges:
                for cause in _range_causes(each, end):
                    yield Fault(FaultCode.PROGRESS_WRONG, "reader_range", str(each.id), cause)
            for cause in _history_causes(connection, entry.id, ranges, newest - KEPT_MOVES):
                yield Fault(FaultCode.PROGRESS_WRONG, "reader", str(entry.id), cause)
            tell(len(ranges))
        yield from _check_names(connection)


def _range_causes(found: ReaderRange, end: Place) -> Iterator[str]:
    spans = [(each.first, each.last) for each in found.stretches]
    for cause in _tiling_causes(spans, found.first, found.last):
        yield f"its stretches {cause}"
    for stretch in found.stretches:
        yield from _stretch_causes(stretch, end, is_out=found.handed_out)
    if found.counter < 0 or found.skipped < 0:
        yield f"it has the counter {found.counter}, and {found.skipped} skipped envelopes"


def _stretch_causes(stretch: Stretch, end: Place, *, is_out: bool) -> Iterator[str]:
    at = f"the stretch from {stretch.first:016x}"
    if not Place(1) <= stretch.position <= end or min(stretch.position) < 0:
        yield f"{at} stands at {stretch.position}, and the log ends at {end}"
    if (stretch.until is not None) != is_out:
        yield f"{at} has {'no' if stretch.until is None else 'an'} end, and {'a' if is_out else 'no'} batch is out"
    if stretch.until is not None and not stretch.position <= stretch.until <= end:
        yield f"{at} stands at {stretch.position}, and its batch ends at {stretch.until}"


def _history_causes(
    connection: sa.Connection, service_id: int, ranges: Sequence[ReaderRange], oldest: int
) -> Iterator[str]:
    """Compare each stretch with the newest move of it in the history.

    Args:
        oldest: the id from which on the history is whole; of older moves some are forgotten.
    """
    row = model.reader_move.c
    of_reader = sa.select(model.reader_move).where(row.service_id == service_id, row.id >= oldest)
    left = [stretch for each in ranges for stretch in each.stretches]
    for move in connection.execute(of_reader.order_by(row.id.desc())):
        if not left:
            return
        first, last = int(move.first, 16), int(move.last, 16)
        to = Place(move.to_position, move.to_event, move.to_item)
        moved = [stretch for stretch in left if stretch.first <= last and stretch.last >= first]
        left = [stretch for stretch in left if stretch not in moved]
        for stretch in moved:
            if stretch.position != to:
                at = f"the stretch from {stretch.first:016x}"
                yield f"{at} stands at {stretch.position}, and its history ends at {to}"


def _tiling_causes(spans: Sequence[tuple[int, int]], first: int, last: int) -> Iterator[str]:
    wanted = first
    for begin, end in spans:
        if begin != wanted or end < begin:
            yield f"have {begin:016x} to {end:016x} where {wanted:016x} has to begin"
            return
        wanted = end + 1
    if wanted != last + 1:
        yield f"end before {last:016x}"


def _check_names(connection: sa.Connection) -> Iterator[Fault]:
    """Check that who owns a range has a lease, and nobody else."""
    row = model.reader_range.c
    has_none = sa.or_(row.completed_at.is_not(None), row.expires_at.is_(None))
    wrong = sa.select(row.id).where(row.owner.is_not(None), has_none)
    for range_id in connection.execute(wrong.limit(100)).scalars():
        yield Fault(FaultCode.PROGRESS_WRONG, "reader_range", str(range_id), "it has an owner, and no lease")


# -- log end -----------------------------------------------------------------------------------------------------------
# Compares the end of the log, and its table of contents, with the envelopes that have positions.

_CONTENTS = model.contents.c
_LISTED = (
    sa.select(model.contents, model.graph.c.event_type_id)
    .join(model.graph, model.graph.c.id == _CONTENTS.graph_id)
    .where(_CONTENTS.block == sa.bindparam("block"))
)
_THERE = (
    sa.select(
        *(
            _ENVELOPE.position,
            _EVENT.graph_id,
            _EVENT.event_type_id,
            sa.func.count().label("events"),
        ),
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
