"""Takes the items of listed events, in order, up to bounds; pure but for the source of the items.

The sizes of segments are read before their data, so that memory is bounded however large the events are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import NamedTuple, Protocol, TypeAlias

from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.cutting import cut_items, replace_items
from xbus.broker.journal.log.slices.listing import ListedEvent
from xbus.broker.journal.log.slices.values import NO_BOUNDS, Place, SliceBounds, SliceEvent
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
