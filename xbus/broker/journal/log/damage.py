"""Compares stored items with their hashes, a page at a time, in the order in which they lie."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.objects.reading import STORED_DATA, segment_data
from xbus.errors import JournalError, JournalUnavailable

PAGE_BYTES = 1024 * 1024
PAGE_ROWS = 500

SegmentPlace: TypeAlias = tuple[UUID, int]
"""The event and the first index of a segment."""

BEGINNING: SegmentPlace = (UUID(int=0), -1)


def _size_of(row: Any) -> sa.ColumnElement[int]:
    return sa.func.coalesce(row.plain_bytes, sa.func.length(row.data), type_=sa.Integer)


class Damaged(NamedTuple):
    """A segment that is not as it was stored."""

    event_id: UUID
    first_index: int
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
    end = (page[-1].event_id, page[-1].first_index)
    door = segment_data(connection)
    damaged: list[Damaged] = []
    for event_id, index, *stored in connection.execute(_DATA, {**place, "last_id": end[0], "last_index": end[1]}):
        try:
            door.plain(*stored)
        except JournalUnavailable:
            raise
        except JournalError as error:
            damaged.append(Damaged(event_id, index, f"items from index {index} on: {error.cause}"))
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
