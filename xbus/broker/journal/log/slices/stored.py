"""Reads the items of listed events from the database."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import PLAIN_SIZE
from xbus.broker.journal.database.raw_reader import Query, copy_out
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.items import ItemSpan, SegmentSize, Sizes
from xbus.broker.journal.log.slices.listing import IDS, as_text
from xbus.broker.journal.objects.reading import STORED_DATA, STORED_DATA_TEXT, segment_data
from xbus.errors import JournalError

StoredSegment: TypeAlias = tuple[str, int, int, bytes, int | None, int | None, bytes]
"""A row of ``model.log_segment``: the event's id as text, first index, items, and what ``STORED_DATA`` names."""


class StoredItems:
    """The items of the database, see ``ItemSource``.

    Args:
        connection: in a transaction.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._are_corrected: bool | None = None

    def sizes(self, spans: Sequence[ItemSpan], end: int) -> Sizes:
        """Read the segments of some spans up to an index, without their data."""
        sizes: defaultdict[str, list[SegmentSize]] = defaultdict(list)
        start = self._segment_start(spans[0]) if spans[0].first else 0
        wanted = {"events": [span.event.segments_id for span in spans], "start": start, "end": end}
        for event_id, *row in self._connection.execute(_SIZES, wanted).all():
            sizes[event_id].append(SegmentSize(*row))
        return sizes

    def segments(self, spans: Sequence[ItemSpan]) -> Mapping[str, Sequence[Segment]]:
        """Read the segments of whole events, or of one span."""
        segments: defaultdict[str, list[Segment]] = defaultdict(list)
        if spans:
            start = self._segment_start(spans[0]) if spans[0].first else 0
            end = max(span.end for span in spans)
            wanted = {"events": [span.event.segments_id for span in spans], "start": start, "end": end}
            door = segment_data(self._connection)
            for event_id, first, items, data, plain_bytes, store_id, digest in self._fetch_data(wanted):
                plain = door.plain_of(event_id, first, data, plain_bytes, store_id, digest)
                segments[event_id].append(Segment(first, items, plain))
        return segments

    def corrections(self, spans: Sequence[ItemSpan]) -> Mapping[str, Mapping[int, bytes]]:
        """Read the items that were corrected for all; mostly there is none in the whole database."""
        if self._are_corrected is None:
            self._are_corrected = self._connection.execute(_ANY_CORRECTION).first() is not None
        found: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        if self._are_corrected and spans:
            wanted = {"events": [span.event.segments_id for span in spans]}
            for event_id, index, after in self._connection.execute(_CORRECTIONS, wanted):
                found[event_id][index] = bytes(after)
        return found

    def pass_missing(self, span: ItemSpan) -> None:
        """Let the items of an envelope be missing whose removal has begun since it was listed.

        Raises:
            JournalError: it is not so.
        """
        found = self._connection.execute(_PRUNED, {"of_id": span.event.facts.envelope_id}).one_or_none()
        if found is not None and found[0] is None:
            raise JournalError(f"event {span.event.facts.event_id} misses items from index {span.first} on")

    def _segment_start(self, span: ItemSpan) -> int:
        """The index at which the segment begins that holds the first item of a span; 0 where it was removed."""
        wanted = {"of_event": span.event.segments_id, "item": span.first}
        return self._connection.execute(_SEGMENT_START, wanted).scalar() or 0

    def _fetch_data(self, wanted: Mapping[str, Any]) -> Iterable[StoredSegment]:
        """Fetch segments; on PostgreSQL by binary COPY, as its driver decodes bytes from text otherwise."""
        if self._connection.dialect.name == "sqlite":
            return cast(list[StoredSegment], self._connection.execute(_DATA, wanted).all())
        try:
            return copy_out(self._connection.connection.driver_connection, _DATA_COPIED, **wanted)
        except BaseException:
            # SQLAlchemy has not seen what happened to the connection: it must not lend it again.
            self._connection.invalidate()
            raise


_SEGMENT = model.log_segment.c
_EVENTS: sa.BindParameter[str] = sa.bindparam("events", expanding=True, type_=IDS)
_ITEM = sa.bindparam("item", type_=sa.BigInteger)
_WANTED = sa.and_(
    as_text(_SEGMENT.event_id).in_(_EVENTS),
    _SEGMENT.first_index >= sa.bindparam("start", type_=sa.BigInteger),
    _SEGMENT.first_index < sa.bindparam("end", type_=sa.BigInteger),
)
_SIZES = (
    sa.select(as_text(_SEGMENT.event_id), _SEGMENT.first_index, _SEGMENT["items"], PLAIN_SIZE)
    .where(_WANTED)
    .order_by(_SEGMENT.event_id, _SEGMENT.first_index)
)
_STORED = [_SEGMENT[name] for name in STORED_DATA]
_DATA = (
    sa.select(as_text(_SEGMENT.event_id), _SEGMENT.first_index, _SEGMENT["items"], *_STORED)
    .where(_WANTED)
    .order_by(_SEGMENT.event_id, _SEGMENT.first_index)
)
_DATA_COPIED: Query[StoredSegment] = Query(
    f"SELECT CAST(event_id AS text), first_index, items, {STORED_DATA_TEXT} FROM log_segment"
    " WHERE event_id = ANY(CAST(%(events)s AS uuid[])) AND first_index >= %(start)s AND first_index < %(end)s"
    " ORDER BY event_id, first_index",
    "sqibiib",
)
_SEGMENT_START = (
    sa.select(_SEGMENT.first_index)
    .where(as_text(_SEGMENT.event_id) == sa.bindparam("of_event", type_=IDS), _SEGMENT.first_index <= _ITEM)
    .order_by(_SEGMENT.first_index.desc())
    .limit(1)
)
_PRUNED = sa.select(model.envelope.c.pruned_at).where(as_text(model.envelope.c.id) == sa.bindparam("of_id", type_=IDS))
_CORRECTION = model.correction.c
_FOR_ALL = _CORRECTION.role_id.is_(None)
_ANY_CORRECTION = sa.select(_CORRECTION.id).where(_FOR_ALL).limit(1)
_CORRECTIONS = (
    sa.select(as_text(_CORRECTION.event_id), _CORRECTION.item_index, _CORRECTION.after)
    .where(_FOR_ALL, as_text(_CORRECTION.event_id).in_(_EVENTS))
    # Of several corrections of one item the last one counts.
    .order_by(_CORRECTION.id)
)
