"""Takes the items of listed events, in order, up to bounds; pure but for the source of the items.

The sizes of segments are read before their data, so that memory is bounded however large the events are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import sqlalchemy as sa

from xbus import model
from xbus.broker.journal.database.compression import DAMAGED, PLAIN_SIZE
from xbus.broker.journal.database.raw_reader import Query, copy_out
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.listing import IDS, ListedEvent, ListPage, as_text, read_list_page
from xbus.broker.journal.log.slices.values import (
    NO_BOUNDS,
    EventHead,
    Place,
    Slice,
    SliceBounds,
    SliceEvent,
    Stretch,
    cut_items,
    replace_items,
)
from xbus.broker.journal.objects.reading import STORED_DATA, STORED_DATA_TEXT, segment_data
from xbus.errors import JournalError

CHUNK_EVENTS = 512
"""Events whose segments are read by one statement at the most. More make fewer statements, and longer ones."""

SMALL_BYTES = 64 * 1024
"""Up to so many bytes an event is taken whole or not, without a look at its segments."""

CHUNK_ITEMS = 65_536
"""Items whose segments are read by one statement at the most: each may be a segment of its own."""


class ItemSpan(NamedTuple):
    """Items of an event that a slice wants: from the index ``first`` up to ``end``, which does not belong to them."""

    event: ListedEvent
    first: int
    end: int

    @property
    def items(self) -> int:
        return self.end - self.first

    @property
    def is_whole(self) -> bool:
        return self.first == 0 and self.end == self.event.items

    @property
    def is_small(self) -> bool:
        """True for a whole event that is known to be small."""
        event, first, end = self
        size = event.data_bytes
        return size is not None and size <= SMALL_BYTES and first == 0 and end == event.items

    @property
    def known_sizes(self) -> "Sequence[SegmentSize]":
        """A small event as if it were one segment: what counts are the bytes of all of them."""
        items, size = self.event.items, self.event.data_bytes
        return (SegmentSize(0, items, size),) if items and size is not None else ()

    def place(self, item: int) -> Place:
        """Give the place before one of the items."""
        return self.event.facts.place._replace(item=item)

    @property
    def behind(self) -> Place:
        """The place behind the items."""
        here = self.event.facts.place
        return self.place(self.end) if self.end < self.event.items else Place(here.position, here.event + 1)


class DamagedItems(JournalError):
    """The next items of a slice do not have their hash.

    Args:
        error: of the first damaged segment.
        to: the place behind the items of that event which the slice would have held.
    """

    default_code = DAMAGED

    def __init__(self, error: JournalError, to: Place) -> None:
        super().__init__(error.cause, error.next_step)
        self.to = to


class SegmentSize(NamedTuple):
    """A row of ``model.segment`` without its data."""

    first_index: int
    items: int
    size: int

    @property
    def end(self) -> int:
        return self.first_index + self.items


Sizes: TypeAlias = Mapping[str, Sequence[SegmentSize]]
"""The segments of events in order, by the id under which they are stored."""


class ItemSource(Protocol):
    """Has the items of listed events."""

    def sizes(self, spans: Sequence[ItemSpan], end: int) -> Sizes:
        """Give the segments of some spans up to an index, without their data."""

    def segments(self, spans: Sequence[ItemSpan]) -> Mapping[str, Sequence[Segment]]:
        """Give the segments of whole events, or of one span, by the id under which they are stored."""

    def corrections(self, spans: Sequence[ItemSpan]) -> Mapping[str, Mapping[int, bytes]]:
        """Give the items that were corrected for all, by that id and their index."""

    def pass_missing(self, span: ItemSpan) -> None:
        """Let the items of an envelope be missing whose removal has begun since it was listed.

        Raises:
            JournalError: it is not so.
        """


class SliceItems:
    """Reads items until bounds are reached.

    Args:
        source: has the items.
        bounds: None to read all that is asked for.
    """

    def __init__(self, source: ItemSource, bounds: SliceBounds | None) -> None:
        self._source = source
        self._is_empty = True
        self._is_bounded = bounds is not None
        # What is left of the bounds.
        self._items, self._bytes, self._events = astuple(bounds or NO_BOUNDS)
        self.events: list[SliceEvent] = []
        """The items that were read."""
        self.stopped_at: Place | None = None
        """The place of the first item that did not fit, or is damaged; None while all did."""

    def read(self, spans: Iterable[ItemSpan]) -> None:
        """Read items as far as they fit, and up to an event with damaged ones.

        Args:
            spans: in the order of the log.

        Raises:
            DamagedItems: the first items are damaged, or some of those that are read without bounds.
            JournalError: the log misses items that it should have.
        """
        for chunk in _chunks(spans, self._items):
            sizes = self._read_sizes([span for span in chunk if not span.is_small])
            fitting = []
            for span in chunk:
                part = self._small_one(span) or self._fitting(span, sizes)
                if part is not None:
                    fitting.append(part)
                if self.stopped_at is not None:
                    break
            self._take(fitting)
            if self.stopped_at is not None:
                return

    def _small_one(self, span: ItemSpan) -> ItemSpan | None:
        """Count a small event with items, and give its span, if it fits whole: most events end here."""
        if not span.is_small:
            return None
        event = span.event
        items, size = event.items, event.facts.size + (event.data_bytes or 0)
        if not items or items > self._items or size > self._bytes or self._events <= 0:
            return None
        self._count(items, size)
        return span

    def _fitting(self, span: ItemSpan, sizes: Sizes) -> ItemSpan | None:
        """Give the part of a span that fits, and count it. None, and the place where it stopped, if nothing fits.

        Bytes end it between two segments. Only if nothing else was taken it ends within the first segment, whose items
        count its average then.
        """
        if self._items <= 0 or self._bytes <= 0 or self._events <= 0:
            self.stopped_at = span.place(span.first)
            return None
        most = min(span.end, span.first + self._items)
        segments = span.known_sizes if span.is_small else sizes.get(span.event.segments_id, ())
        if not _cover(segments, span.first, most):
            self._source.pass_missing(span)
            return None
        end, size = self._measure(span, segments, most)
        if end < span.end:
            self.stopped_at = span.place(end)
        if end == span.first and span.items:
            return None
        self._count(max(end - span.first, 1), size)
        return span._replace(end=end)

    def _count(self, items: int, size: int) -> None:
        self._items -= items
        self._bytes -= size
        self._events -= 1
        self._is_empty = False

    def _measure(self, span: ItemSpan, segments: Sequence[SegmentSize], most: int) -> tuple[int, int]:
        """Find the end of the items that fit into the bytes that are left, and the bytes that they count."""
        end, size = span.first, span.event.facts.size
        for segment in segments:
            wanted = min(segment.end, most) - end
            share = segment.size * wanted // segment.items
            if size + share > self._bytes:
                if self._is_empty and end == span.first:
                    end += min(wanted, max(1, (self._bytes - size) * segment.items // segment.size))
                break
            end, size = end + wanted, size + share
        return end, size

    def _read_sizes(self, spans: Sequence[ItemSpan]) -> Sizes:
        if not spans:
            return {}
        end = min(max(span.end for span in spans), spans[0].first + self._items)
        return self._source.sizes(spans, end)

    def _take(self, spans: Sequence[ItemSpan]) -> None:
        """Read the data of items that fit."""
        corrections = self._source.corrections(spans)
        whole = self._read_whole([span for span in spans if span.is_whole])
        for span in spans:
            try:
                segments = whole if whole is not None and span.is_whole else self._source.segments([span])
            except JournalError as error:
                if error.code != DAMAGED:
                    raise
                if self.events and self._is_bounded:
                    self.stopped_at = span.place(span.first)
                    return
                raise DamagedItems(error, span.behind) from error
            event, first, end = span
            data = _cut(segments.get(event.segments_id, ()), span)
            if data is None:
                self._source.pass_missing(span)
                continue
            if corrections and (of_event := corrections.get(event.segments_id)):
                corrected = {index - first: after for index, after in of_event.items() if first <= index < end}
                data = replace_items(data, end - first, corrected) if corrected else data
            self._add(SliceEvent(event.facts, first, end - first, data))

    def _read_whole(self, spans: Sequence[ItemSpan]) -> Mapping[str, Sequence[Segment]] | None:
        """Read whole events together; None where one of them is damaged, so that each has to be read alone."""
        try:
            return self._source.segments(spans)
        except JournalError as error:
            if error.code != DAMAGED:
                raise
            return None

    def _add(self, event: SliceEvent) -> None:
        if self.events and self.events[-1].facts is event.facts:
            last = self.events.pop()
            event = SliceEvent(event.facts, last.first_index, last.items + event.items, last.data + event.data)
        self.events.append(event)


def _chunks(spans: Iterable[ItemSpan], most_items: int) -> Iterator[Sequence[ItemSpan]]:
    """Cut spans into runs for one statement each; what begins in mid-event has a statement of its own."""
    most_items = min(CHUNK_ITEMS, most_items)
    chunk: list[ItemSpan] = []
    items = 0
    for span in spans:
        event, first, end = span
        items += end - first
        if first or items > most_items or len(chunk) == CHUNK_EVENTS:
            if chunk:
                yield chunk
            chunk, items = [], end - first
            if first or items > CHUNK_ITEMS:
                for piece in range(first, end, CHUNK_ITEMS):
                    yield [ItemSpan(event, piece, min(end, piece + CHUNK_ITEMS))]
                items = 0
                continue
        chunk.append(span)
    if chunk:
        yield chunk


def _cover(segments: Sequence[SegmentSize], first: int, end: int) -> bool:
    """Check whether segments hold all items from one index up to another."""
    for segment in segments:
        if segment.first_index > first:
            break
        first = max(first, segment.end)
    return first >= end


def _cut(segments: Sequence[Segment], span: ItemSpan) -> bytes | None:
    """Join the data of a span; None where segments are missing."""
    if len(segments) == 1 and segments[0][:2] == (span.first, span.items):
        return segments[0].data
    data = segments[0].data if len(segments) == 1 else b"".join([segment.data for segment in segments])
    if not segments:
        return data if not span.items else None
    first, end = segments[0].first_index, segments[-1].first_index + segments[-1].items
    if sum([segment.items for segment in segments]) != end - first or first > span.first or end < span.end:
        return None
    # Mostly it begins and ends between segments.
    return data if (first, end) == (span.first, span.end) else cut_items(data, span.first - first, span.end - first)


# -- stored ------------------------------------------------------------------------------------------------------------
# Reads the items of listed events from the database.

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


# -- reading -----------------------------------------------------------------------------------------------------------
# Reads a slice of the log: lists events page by page, and reads the items that are wanted of them.

MOST_PAGES = 16
"""Lists of events that are looked through for one slice at the most, so that no read takes long."""

ListSource: TypeAlias = Callable[[sa.Connection, frozenset[int], Place], ListPage]


Pages: TypeAlias = Callable[[frozenset[int], Place], ListPage]
"""Gives the list of events of some types that covers a place."""


def read_slice(
    connection: sa.Connection,
    types: frozenset[int],
    stretches: Sequence[Stretch],
    bounds: SliceBounds,
    lists: ListSource = read_list_page,
    most_pages: int = MOST_PAGES,
) -> Slice:
    """Read the next items of some event types from the database, see :func:`cut_slice`.

    Args:
        lists: gives lists of events.
    """
    return cut_slice(partial(lists, connection), StoredItems(connection), types, stretches, bounds, most_pages)


def read_heads(
    connection: sa.Connection, types: frozenset[int], stretches: Sequence[Stretch], until: Place
) -> list[EventHead]:
    """Read which events of some types have items in stretches, up to a place, without the items.

    The list ends before what only an archive has.
    """
    place = min(stretch.position for stretch in stretches)
    found: list[EventHead] = []
    while place < until:
        page = read_list_page(connection, types, place)
        found += [span.event.facts for span in _wanted(page.events_from(place), stretches)]
        if page.to == place:
            break
        place = page.to
    return found


def cut_slice(
    pages: Pages,
    source: ItemSource,
    types: frozenset[int],
    stretches: Sequence[Stretch],
    bounds: SliceBounds,
    most_pages: int = MOST_PAGES,
) -> Slice:
    """Give the next items of some event types, in the order of the log.

    Args:
        pages: give lists of events.
        source: has the items of these.
        types: the ids of the event types.
        stretches: which hashes, and from which place on each; they don't overlap. Either all have ``until`` or none.
        bounds: the most that is read; of no account for stretches with ``until``, which are read whole.
        most_pages: how many lists are looked through at the most.

    Returns:
        The found events. There may be none though the log goes on: to look for more, read on at ``to``.

    Raises:
        DamagedItems: the next items are damaged, or some of those between a place and ``until``.
        JournalError: the log misses items that it should have.
        ValueError: some stretches have ``until`` and others have not.
    """
    ends = [stretch.until for stretch in stretches if stretch.until is not None]
    if ends and len(ends) < len(stretches):
        raise ValueError("a slice is either read again, or read on: give all stretches until, or none")
    place = min(stretch.position for stretch in stretches)
    until = max(ends, default=None)
    items = SliceItems(source, None if ends else bounds)
    looked = 0
    while (until is None and looked < most_pages) or (until is not None and place < until):
        page = pages(types, place)
        items.read(_wanted(page.events_from(place), stretches))
        if items.stopped_at is not None:
            return Slice(items.stopped_at, tuple(items.events))
        if page.archived:
            return Slice(page.to, tuple(items.events), page.archived)
        if page.to == place:
            return Slice(place if until is None else until, tuple(items.events), ends_log=until is None)
        place = page.to
        looked += 1
    return Slice(place if until is None else until, tuple(items.events))


def _wanted(events: Sequence[ListedEvent], stretches: Sequence[Stretch]) -> Iterator[ItemSpan]:
    """Find the items that stretches want."""
    whole = next((each for each in stretches if each.is_whole_ring), None)
    for event in events:
        stretch = whole or next((each for each in stretches if event.hash in each), None)
        if stretch is not None and (span := _span(event, stretch)) is not None:
            yield span


def _span(event: ListedEvent, stretch: Stretch) -> ItemSpan | None:
    """Find the items of an event between the place of a stretch and its end."""
    facts, begin, until = event.facts, stretch.position, stretch.until
    here = facts.position, facts.event
    if until is None and begin < here:
        return ItemSpan(event, 0, event.items)
    first = begin.item if begin[:2] == here else 0
    end = event.items
    if until is not None and until[:2] == here:
        end = min(end, until.item)
        if not end:
            return None
    if begin[:2] > here or (until is not None and until[:2] < here):
        return None
    return ItemSpan(event, first, end) if first < end or first == end == 0 else None
