"""Computes hashes and totals of what bulk workers made anew, and counts the bytes that the journal stores."""

import hashlib
from collections.abc import Iterator
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.bulk.outputs import BEGINNING, read_output, read_totals
from xbus.broker.journal.database.compression import PLAIN_SIZE
from xbus.broker.journal.fsck.content import has_items
from xbus.broker.journal.fsck.faults import Fault, FaultCode, Tell
from xbus.broker.journal.writes.bulk import Place
from xbus.states import AttemptState

PAGE_BYTES = 8 * 1024 * 1024
SOURCE_BYTES = 8

_ATTEMPT, _SEGMENT = model.bulk_attempt.c, model.bulk_segment.c
_READY = _ATTEMPT.state == AttemptState.READY.value


def check_outputs(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Check each output that is ready: one that is still made, or came to nothing, counts nowhere."""
    with connection.begin():
        ready = connection.execute(sa.select(_ATTEMPT.id).where(_READY)).scalars().all()
    for attempt_id in ready:
        with connection.begin():
            told = connection.execute(sa.select(model.bulk_attempt).where(_ATTEMPT.id == attempt_id, _READY)).first()
            if told is None:  # its envelope was removed meanwhile
                continue
            found = read_totals(connection, attempt_id)
            wanted = told._mapping
            if (found.items, found.data_bytes, found.hash) != (wanted["items"], told.bytes, bytes(told.hash or b"")):
                cause = "its segments do not have its hash, its number of items, or its size"
                yield Fault(FaultCode.OUTPUT_CHANGED, "bulk_attempt", str(attempt_id), cause)
            after, before = BEGINNING, BEGINNING
            while page := read_output(connection, attempt_id, after, PAGE_BYTES, verify=lambda data, _: data):
                hashes = dict(_hashes(connection, attempt_id, page[0].place, page[-1].place))
                for segment in page:
                    good = hashlib.sha256(segment.data).digest() == hashes.get(segment.place)
                    sourced = segment.sources is None or len(segment.sources) == SOURCE_BYTES * segment.items
                    number = before[1] + 1 if segment.part == before[0] else 0
                    before = segment.place
                    row = f"{attempt_id}, {segment.part}, {segment.number}"
                    if segment.number != number:
                        cause = f"it is segment {number} of its part"
                        yield Fault(FaultCode.OUTPUT_CHANGED, "bulk_segment", row, cause)
                    if not (good and sourced and has_items(segment.data, segment.items)):
                        cause = "its data does not have its hash, or its number of items"
                        yield Fault(FaultCode.OUTPUT_CHANGED, "bulk_segment", row, cause)
                after = page[-1].place
                tell(len(page))


def _hashes(
    connection: sa.Connection, attempt_id: UUID, first: Place, last: Place
) -> Iterator[tuple[Place, bytes | None]]:
    place = sa.tuple_(_SEGMENT.part, _SEGMENT.number)
    found = sa.select(_SEGMENT.part, _SEGMENT.number, _SEGMENT.hash).where(
        _SEGMENT.attempt_id == attempt_id, place >= sa.tuple_(*first), place <= sa.tuple_(*last)
    )
    for part, number, digest in connection.execute(found):
        yield (part, number), bytes(digest)


def check_stored_bytes(connection: sa.Connection, tell: Tell) -> Iterator[Fault]:
    """Compare the count of stored bytes, by which the journal knows that it is full, with their sum."""
    counted = sa.select(sa.func.coalesce(sa.func.sum(model.writer.c.stored_bytes), 0)).scalar_subquery()
    of_segments = sa.func.coalesce(sa.func.sum(PLAIN_SIZE), 0)
    of_outputs = sa.select(sa.func.coalesce(sa.func.sum(_ATTEMPT.bytes), 0)).where(_READY)
    sums = sa.select(counted, sa.select(of_segments).scalar_subquery(), of_outputs.scalar_subquery())
    with connection.begin():
        says, segments, outputs = map(int, connection.execute(sums).one())
    tell(0)
    if says != segments + outputs:
        cause = f"it counts {says} bytes of items, and {segments + outputs} are stored"
        yield Fault(FaultCode.BYTES_MISCOUNTED, "writer", "", cause)
