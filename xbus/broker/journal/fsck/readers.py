"""Compares the places of readers with the log and their history, and their ranges with the ring that they tile."""

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.broker.journal.log.reading import read_head
from xbus.broker.journal.log.slices import LAST_HASH, Place, Stretch
from xbus.broker.journal.readers import KEPT_MOVES, ReaderRange, read_ranges, read_readers


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
