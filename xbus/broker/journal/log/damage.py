"""Compares stored items with their hashes, a page at a time, in the order in which they lie."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import PLAIN_SIZE
from xbus.broker.journal.database.paging import first_page
from xbus.broker.journal.objects.reading import STORED_DATA, segment_data
from xbus.errors import JournalError, JournalUnavailable

PAGE_BYTES = 1024 * 1024
PAGE_ROWS = 500

SegmentPlace: TypeAlias = tuple[UUID, int]
"""The event and the first index of a segment."""

BEGINNING: SegmentPlace = (UUID(int=0), -1)


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


_SEGMENT = model.segment.c
_PLACE = sa.tuple_(_SEGMENT.event_id, _SEGMENT.first_index)


def _at(event_id: str, first_index: str) -> sa.Tuple:
    return sa.tuple_(sa.bindparam(event_id, type_=sa.Uuid()), sa.bindparam(first_index, type_=sa.BigInteger()))


_BEHIND = _at("event_id", "first_index") < _PLACE
_SIZES = (
    sa.select(_SEGMENT.event_id, _SEGMENT.first_index, PLAIN_SIZE)
    .where(_BEHIND)
    .order_by(_SEGMENT.event_id, _SEGMENT.first_index)
    .limit(PAGE_ROWS)
)
_DATA = sa.select(_SEGMENT.event_id, _SEGMENT.first_index, *[_SEGMENT[name] for name in STORED_DATA]).where(
    _BEHIND, _at("last_id", "last_index") >= _PLACE
)
