"""Compares cursors and rows about envelopes and items with the log that they are about."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.rows import NamedRows
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
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
