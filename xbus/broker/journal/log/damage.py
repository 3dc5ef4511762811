"""Compares stored items with their hashes, a page at a time, in the order in which they lie."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import verified
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.objects.reading import STORED_DATA, segment_data
from xbus.errors import JournalError, JournalUnavailable

PAGE_BYTES = 1024 * 1024
PAGE_ROWS = 500

SegmentPlace: TypeAlias = tuple[UUID, int, int]
"""Event, first index and 0 of a segment; or attempt, part and number of one of an output."""

BEGINNING: SegmentPlace = (UUID(int=0), -1, 0)


def _size_of(row: Any) -> sa.ColumnElement[int]:
    return sa.func.coalesce(row.plain_bytes, sa.func.length(row.data), type_=sa.Integer)


class Damaged(NamedTuple):
    """A segment that is not as it was stored.

    Attributes:
        about: the event, or the output of a bulk worker.
    """

    about: str
    cause: str


class DamagePage(NamedTuple):
    """The result of comparing some segments.

    Attributes:
        end: the last of them.
    """

    end: SegmentPlace
    damaged: Sequence[Damaged]


def find_damage(connection: sa.Connection, after: SegmentPlace) -> DamagePage | None:
    """Compare the segments behind a place with their hashes; None behind the last.

    Raises:
        JournalUnavailable: the object store of one can't be read now.
    """
    place = {"event_id": after[0], "first_index": after[1]}
    page = first_page(connection.execute(_SIZES, place).all(), PAGE_BYTES)
    if not page:
        return None
    end = (page[-1].event_id, page[-1].first_index, 0)
    door = segment_data(connection)
    damaged: list[Damaged] = []
    for event_id, index, *stored in connection.execute(_DATA, {**place, "last_id": end[0], "last_index": end[1]}):
        try:
            door.plain(*stored)
        except JournalUnavailable:
            raise
        except JournalError as error:
            damaged.append(Damaged(f"event {event_id}", f"items from index {index} on: {error.cause}"))
    return DamagePage(end, damaged)


def find_damaged_outputs(connection: sa.Connection, after: SegmentPlace) -> DamagePage | None:
    """Compare the segments of bulk workers' outputs behind a place with their hashes; None behind the last."""
    place = {"attempt_id": after[0], "part": after[1], "number": after[2]}
    page = first_page(connection.execute(_OUTPUT_SIZES, place).all(), PAGE_BYTES)
    if not page:
        return None
    end = (page[-1].attempt_id, page[-1].part, page[-1].number)
    damaged: list[Damaged] = []
    last = {"last_id": end[0], "last_part": end[1], "last_number": end[2]}
    for attempt_id, part, number, data, digest in connection.execute(_OUTPUT_DATA, {**place, **last}):
        try:
            verified(bytes(data), digest)
        except JournalError as error:
            damaged.append(Damaged(f"output {attempt_id}", f"segment {number} of part {part}: {error.cause}"))
    return DamagePage(end, damaged)


_SEGMENT, _EVENT = model.segment.c, model.event.c
_PLACE = sa.tuple_(_SEGMENT.event_id, _SEGMENT.first_index)
_OF_EVENT = sa.bindparam("event_id", type_=sa.Uuid())


def _at(event_id: str, first_index: str) -> sa.Tuple:
    return sa.tuple_(sa.bindparam(event_id, type_=sa.Uuid()), sa.bindparam(first_index, type_=sa.BigInteger()))


_BEHIND = _at("event_id", "first_index") < _PLACE
_IN_EVENTS = sa.and_(_EVENT.id > _OF_EVENT, _EVENT.data.is_not(None))
_IN_ORDER = ("event_id", "first_index")
_FIRST = sa.literal_column("0", sa.BigInteger).label("first_index")
# Each half by its own index, up to a limit: in log_segment no index has the order of both.
_NEXT = (
    sa.select(_SEGMENT.event_id, _SEGMENT.first_index, _size_of(_SEGMENT).label("size"))
    .where(_BEHIND)
    .order_by(*_IN_ORDER)
    .limit(PAGE_ROWS)
    .subquery()
)
_NEXT_IN_EVENTS = (
    sa.select(_EVENT.id.label("event_id"), _FIRST, _size_of(_EVENT).label("size"))
    .where(_IN_EVENTS)
    .order_by(_EVENT.id)
    .limit(PAGE_ROWS)
    .subquery()
)
_SIZES = sa.union_all(sa.select(_NEXT), sa.select(_NEXT_IN_EVENTS)).order_by(*_IN_ORDER).limit(PAGE_ROWS)
_DATA = sa.union_all(
    sa.select(_SEGMENT.event_id, _SEGMENT.first_index, *[_SEGMENT[name] for name in STORED_DATA]).where(
        _BEHIND, _at("last_id", "last_index") >= _PLACE
    ),
    sa.select(
        *(_EVENT.id, _FIRST, _EVENT.data, _EVENT.plain_bytes, sa.cast(sa.null(), sa.Integer), _EVENT.data_hash)
    ).where(_IN_EVENTS, _EVENT.id <= sa.bindparam("last_id", type_=sa.Uuid())),
)

_OUTPUT = model.bulk_segment.c
_OUTPUT_PLACE = sa.tuple_(_OUTPUT.attempt_id, _OUTPUT.part, _OUTPUT.number)


def _output_at(attempt_id: str, part: str, number: str) -> sa.Tuple:
    return sa.tuple_(
        sa.bindparam(attempt_id, type_=sa.Uuid()),
        *(sa.bindparam(name, type_=sa.Integer()) for name in (part, number)),
    )


_BEHIND_OUTPUT = _output_at("attempt_id", "part", "number") < _OUTPUT_PLACE
_OUTPUT_SIZES = (
    sa.select(_OUTPUT.attempt_id, _OUTPUT.part, _OUTPUT.number, sa.func.length(_OUTPUT.data))
    .where(_BEHIND_OUTPUT)
    .order_by(_OUTPUT.attempt_id, _OUTPUT.part, _OUTPUT.number)
    .limit(PAGE_ROWS)
)
_OUTPUT_DATA = sa.select(_OUTPUT.attempt_id, _OUTPUT.part, _OUTPUT.number, _OUTPUT.data, _OUTPUT.hash).where(
    _BEHIND_OUTPUT, _output_at("last_id", "last_part", "last_number") >= _OUTPUT_PLACE
)
