"""The tail of the log: envelopes sealed last and items stored last stay in memory, and nobody reads them back; pure.

The database holds all of it too, and is the only truth: whoever finds nothing here reads there.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import inf
from uuid import UUID

from xbus.broker.back.log.small import GroupPart, SmallEnvelope
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices.items import ItemSpan, SegmentSize, cut_slice
from xbus.broker.journal.log.slices.listing import ListedEvent, ListPage
from xbus.broker.journal.log.slices.values import EventHead, Place, Slice, SliceBounds, Stretch
from xbus.broker.journal.writes import Append, PutEnvelope, PutEvent, Sealed, SealedEnvelope, SealedGroup

NEWEST_BYTES = 16 * 1024 * 1024
"""How much memory they may take. More spares reads to those who lag a little behind large envelopes."""

SEGMENT_BYTES = 512
"""How much memory a segment takes beside its data, about."""


class NewestItems:
    """The items that were stored last, whether their envelopes are sealed or not.

    Args:
        max_bytes: the oldest go when all take more than this.
    """

    def __init__(self, max_bytes: int = NEWEST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._segments: dict[tuple[UUID, int], Segment] = {}

    @property
    def size(self) -> int:
        """The bytes that they take, about."""
        return self._bytes

    def add(self, appends: Iterable[Append]) -> None:
        """Add items that are durable."""
        for append in appends:
            place = (append.event_id, append.first_index)
            self._forget(place)
            self._segments[place] = segment = Segment(append.first_index, append.items, append.data)
            self._bytes += _segment_bytes(segment)
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._segments)))

    def following(self, event_id: UUID, index: int, max_bytes: int) -> list[Segment]:
        """Give the next segments of an event from an index on; none where the first of them is not here.

        Args:
            max_bytes: no more are added from where they have so much data.
        """
        found: list[Segment] = []
        size = 0
        while size < max_bytes and (segment := self._segments.get((event_id, index))) is not None:
            found.append(segment)
            size += len(segment.data)
            index += segment.items
        return found

    def _forget(self, place: tuple[UUID, int]) -> None:
        segment = self._segments.pop(place, None)
        if segment is not None:
            self._bytes -= _segment_bytes(segment)


def _segment_bytes(segment: Segment) -> int:
    return SEGMENT_BYTES + len(segment.data)


TAIL_BYTES = 8 * 1024 * 1024
"""How much memory the tail may take. More spares reads to those who lag a little."""

ENVELOPE_BYTES = 2 * 1024
"""How much memory an envelope takes beside its items, about."""

GROUPED_BYTES = 768
"""The same of an envelope that came in a group, whose objects are fewer."""

FRESH_SECONDS = 1.0
"""Seconds for which readers read an envelope here. More spares reads to readers that lag a little. Fewer have them
notice sooner what a person has corrected, cleared or removed meanwhile."""

MOST_FRESH = 1_024
"""Envelopes that readers read here. More spare reads to readers that lag a little, and take the loop longer to look
through."""


MOST_MOMENTS = 16
"""So many moments are kept apart while envelopes are fresh. More are more exact, and cost each commit more."""


class LogTail:
    """The envelopes that were sealed last, without gaps; a group of them is kept, and goes, as a whole.

    Args:
        max_bytes: the oldest go when all take more than this.
        fresh_seconds: for so long readers read an envelope here.
        most_fresh: so many of the last ones.
    """

    def __init__(
        self, max_bytes: int = TAIL_BYTES, fresh_seconds: float = FRESH_SECONDS, most_fresh: int = MOST_FRESH
    ) -> None:
        self._max_bytes = max_bytes
        self._fresh_seconds = fresh_seconds
        self._most_fresh = most_fresh
        self._next_moment = -inf
        self._moments: deque[tuple[int, float]] = deque()
        """From which position on something was added, and when, as far as that is fresh."""
        self._readable_from = 1
        """From here on all is fresh, and came as a whole."""
        self._bytes = 0
        self._sealed: dict[int, Sealed] = {}
        self._events: dict[bytes, int] = {}
        """The positions of events, by their ids, of those that were there when one was looked for."""
        self._indexed_to = 0
        self._first = 1
        self._last = 0

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return self._bytes

    def add(self, sealed: Iterable[Sealed], now: float = 0.0) -> bool:
        """Add envelopes that are durable, in position order; what lies before a gap goes.

        Args:
            now: the moment, on the loop's clock.

        Returns:
            Whether any of them repeats another.
        """
        begin, has_repeat = self._last + 1, False
        for each in sealed:
            if each.first != self._last + 1:
                self._clear(each.first)
            self._last = each.last
            self._sealed.update(dict.fromkeys(range(each.first, each.last + 1), each))
            self._bytes += _memory(each)
            if isinstance(each, SealedEnvelope):
                has_repeat = has_repeat or each.is_repeat
                if each.content is None:
                    self._readable_from = each.last + 1
        # Those of almost the same moment count as of the first of them.
        if now >= self._next_moment and begin <= self._last:
            self._next_moment = now + self._fresh_seconds / MOST_MOMENTS
            self._moments.append((begin, now))
            self._fresh_from(now)
        while self._bytes > self._max_bytes:
            self._drop_first()
        return has_repeat

    def _fresh_from(self, now: float) -> int:
        """Forget moments that are over; give the position from which on readers read envelopes here."""
        while self._moments and self._moments[0][1] < now - self._fresh_seconds:
            self._moments.popleft()
            following = self._moments[0][0] if self._moments else self._last + 1
            self._readable_from = max(self._readable_from, following)
        return max(self._readable_from, self._first, self._last + 1 - self._most_fresh)

    def _clear(self, first: int) -> None:
        self._sealed.clear()
        self._events.clear()
        self._bytes = 0
        self._first = self._readable_from = first
        self._indexed_to = first - 1

    def _drop_first(self) -> None:
        first = self._sealed[self._first]
        for position in range(first.first, first.last + 1):
            del self._sealed[position]
        for event_id in _event_ids(first):
            self._events.pop(event_id, None)
        self._bytes -= _memory(first)
        self._first = first.last + 1

    def after(self, position: int, limit: int) -> tuple[list[LogEnvelope], list[SmallEnvelope | None]]:
        """Give the next envelopes above ``position``, in position order; none where the next one is not here.

        Args:
            limit: how many at the most.

        Returns:
            Them, and each with its items where it is small.
        """
        found: list[LogEnvelope] = []
        small: list[SmallEnvelope | None] = []
        while len(found) < limit and (sealed := self._sealed.get(position + len(found) + 1)) is not None:
            if isinstance(sealed, SealedGroup):
                begin = position + len(found) + 1 - sealed.first
                end = min(len(sealed.hashes), begin + limit - len(found))
                whole = GroupPart(sealed.group, range(sealed.first, sealed.last + 1))
                envelopes, of_group = whole.chosen(range(begin, end)).objects()
                found += envelopes
                small += of_group
            elif sealed.content is None:
                break
            else:
                found.append(_in_log(sealed.content, sealed.first))
                segments = [_segments(event) for event in sealed.content.events]
                small.append(SmallEnvelope.of_segments(found[-1], segments))
        return found, small

    def emitters(self, begin: int, now: float) -> set[int]:
        """Give the ids of those that sent the envelopes from a position on; none where these are not all fresh.

        Args:
            now: the moment, on the loop's clock.
        """
        found: set[int] = set()
        position = begin if begin >= self._fresh_from(now) else self._last + 1
        while (sealed := self._sealed.get(position)) is not None:
            if isinstance(sealed, SealedGroup):
                found.update(sealed.group.emitter_ids)
            elif sealed.content is not None:
                found.add(sealed.content.emitter_id)
            position = sealed.last + 1
        return found

    def slice(
        self,
        types: frozenset[int],
        stretches: Sequence[Stretch],
        bounds: SliceBounds,
        now: float,
        logins: Mapping[int, str | None],
    ) -> Slice | None:
        """Cut a slice, see :func:`cut_slice`; None where more than the fresh envelopes is needed.

        Args:
            now: the moment, on the loop's clock.
            logins: of the emitters that are known.
        """
        begin = min([stretch.position for stretch in stretches]).position
        if not self._fresh_from(now) <= begin <= self._last or any(each.until for each in stretches):
            return None
        if None in map(logins.get, self.emitters(begin, now)):
            return None
        source = _NewestItems(self._sealed, self._last, logins)
        return cut_slice(source.page, source, types, stretches, bounds)

    def segments(self, event_ids: Iterable[UUID]) -> dict[UUID, Sequence[Segment]]:
        """The segments of those events that are here, by the id under which they are stored."""
        found: dict[UUID, Sequence[Segment]] = {}
        # Few events are looked for, and many come.
        while (sealed := self._sealed.get(max(self._first, self._indexed_to + 1))) is not None:
            self._events.update(zip(_event_ids(sealed), _positions(sealed), strict=False))
            self._indexed_to = sealed.last
        for event_id in event_ids:
            position = self._events.get(event_id.bytes)
            content = None if position is None else _content(self._sealed[position], position)
            for event in () if content is None else content.events:
                if event.event_id == event_id and event.items:
                    found[event_id] = _segments(event)
        return found


class _NewestItems:
    """The lists and the items of envelopes in memory, for one slice; see ``ItemSource``.

    Args:
        sealed: the envelopes by position.
        last: the position of the last of them.
        logins: of their emitters.
    """

    def __init__(self, sealed: Mapping[int, Sealed], last: int, logins: Mapping[int, str | None]) -> None:
        self._sealed = sealed
        self._last = last
        self._logins = logins
        self._events: dict[str, PutEvent] = {}

    def page(self, types: frozenset[int], place: Place) -> ListPage:
        """List all events of some types from a place on."""
        if place.position > self._last:
            return ListPage(place, place, ())
        positions = range(place.position, self._last + 1)
        contents = [(position, _content(self._sealed[position], position)) for position in positions]
        events = [
            self._listed(content, position, index, event)
            for position, content in contents
            if content is not None
            for index, event in enumerate(content.events)
            if event.event_type_id in types
        ]
        return ListPage(place, Place(self._last + 1), events)

    def sizes(self, spans: Sequence[ItemSpan], end: int) -> Mapping[str, Sequence[SegmentSize]]:
        """Give the one segment of each event."""
        found = {span.event.segments_id: self._events[span.event.segments_id] for span in spans}
        return {key: [SegmentSize(0, event.items, len(event.data))] for key, event in found.items() if event.items}

    def segments(self, spans: Sequence[ItemSpan]) -> Mapping[str, Sequence[Segment]]:
        """Give the one segment of each event."""
        found = {span.event.segments_id: self._events[span.event.segments_id] for span in spans}
        return {key: [Segment(0, event.items, event.data)] for key, event in found.items() if event.items}

    def corrections(self, spans: Sequence[ItemSpan]) -> Mapping[str, Mapping[int, bytes]]:
        """Give none: what was sealed just now is as it was sent."""
        return {}

    def pass_missing(self, span: ItemSpan) -> None:
        """Refuse: nothing is missing of what is in memory."""
        raise AssertionError(f"event {span.event.facts.event_id} is here as a whole")

    def _listed(self, content: PutEnvelope, position: int, index: int, event: PutEvent) -> ListedEvent:
        event_id = str(event.event_id)
        self._events[event_id] = event
        facts = EventHead(
            *(str(content.envelope_id), event_id, event.type_name, position, index),
            *(self._logins[content.emitter_id] or "", content.at, content.head.key, content.head.ordering_key),
            *(event.tags.partition_key, content.head.headers, event.tags.headers),
        )
        return ListedEvent(facts, event.items, event_id, len(event.data) if len(content.events) == 1 else None)


def _content(sealed: Sealed, position: int) -> PutEnvelope | None:
    return sealed.envelope(position) if isinstance(sealed, SealedGroup) else sealed.content


def _event_ids(sealed: Sealed) -> Sequence[bytes]:
    if isinstance(sealed, SealedGroup):
        return sealed.group.event_ids
    return [] if sealed.content is None else [event.event_id.bytes for event in sealed.content.events]


def _positions(sealed: Sealed) -> Iterable[int]:
    """Give the position of each of its events."""
    return range(sealed.first, sealed.last + 1) if isinstance(sealed, SealedGroup) else repeat(sealed.first)


def _segments(event: PutEvent) -> Sequence[Segment]:
    return [Segment(0, event.items, event.data)] if event.items else ()


def _memory(sealed: Sealed) -> int:
    if isinstance(sealed, SealedGroup):
        return GROUPED_BYTES * len(sealed.hashes) + sealed.group.size
    return ENVELOPE_BYTES + (0 if sealed.content is None else sealed.content.size + sealed.content.header_bytes)


def _in_log(content: PutEnvelope, position: int) -> LogEnvelope:
    events = tuple(
        [
            LogEvent(event.event_id.bytes, event.type_name, event.graph_id, event.items, tags=event.tags)
            for event in content.events
        ]
    )
    graph_ids = tuple([event.graph_id for event in events])
    about = (content.head, content.emitter_id, content.at, content.size)
    return LogEnvelope(content.envelope_id.bytes, position, events, graph_ids, None, *about)
