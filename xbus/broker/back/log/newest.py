"""Keeps what this process sealed within the last moment, so that readers at the head of the log need no database; pure.

The database holds all of it too, and is the only truth: whoever finds nothing here reads there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.log.slices import (
    EventHead,
    ItemSpan,
    ListedEvent,
    ListPage,
    Place,
    SegmentSize,
    Slice,
    SliceBounds,
    Stretch,
    cut_slice,
)
from xbus.broker.journal.writes import PutEnvelope, PutEvent, PutGroup, Sealed, SealedGroup

FRESH_SECONDS = 1.0
"""Seconds for which an envelope is read here. More spares reads to readers that lag a little. Fewer have them notice
sooner what a person has corrected, cleared or removed meanwhile."""

MOST_ENVELOPES = 1_024
"""Envelopes that are kept. More spare reads to readers that lag a little, and take the loop longer to look through."""

MOST_BYTES = 8 * 1024 * 1024
"""The bytes of their items."""


class _Kept(NamedTuple):
    """Envelopes that a commit has sealed, and since when they are here."""

    sealed: Sealed
    since: float

    def content(self, position: int) -> PutEnvelope:
        """Give one of them."""
        if isinstance(self.sealed, SealedGroup):
            return self.sealed.envelope(position)
        assert self.sealed.content is not None, "what came in parts is not kept"
        return self.sealed.content

    @property
    def size(self) -> int:
        """The bytes of the items of all of them."""
        if isinstance(self.sealed, SealedGroup):
            return self.sealed.group.size
        return self.content(self.sealed.first).size


class NewestEnvelopes:
    """The envelopes that were sealed last, without gaps; a group of them goes as a whole.

    Args:
        fresh_seconds: for so long an envelope is kept.
        most_envelopes: so many are kept.
    """

    def __init__(self, fresh_seconds: float = FRESH_SECONDS, most_envelopes: int = MOST_ENVELOPES) -> None:
        self._fresh_seconds = fresh_seconds
        self._most_envelopes = most_envelopes
        self._kept: dict[int, _Kept] = {}
        self._first = 1
        self._last = 0
        self._bytes = 0
        self.emitters: set[int] = set()
        """The ids of those that sent them, and of some that sent others before."""

    def add(self, sealed: Iterable[Sealed], now: float) -> None:
        """Add envelopes that are durable, in position order; what lies before a gap goes."""
        for each in sealed:
            content = each.group if isinstance(each, SealedGroup) else each.content
            if each.first != self._last + 1 or content is None:
                self._clear(each.first + (content is None))
            self._last = each.last
            if content is not None:
                kept = _Kept(each, now)
                self._kept.update(dict.fromkeys(range(each.first, each.last + 1), kept))
                self._bytes += kept.size
                self.emitters.update(content.emitter_ids if isinstance(content, PutGroup) else (content.emitter_id,))
        self._forget_old(now)

    def read(
        self,
        types: frozenset[int],
        stretches: Sequence[Stretch],
        bounds: SliceBounds,
        now: float,
        logins: Mapping[int, str | None],
    ) -> Slice | None:
        """Cut a slice, see :func:`cut_slice`; None where more than these envelopes is needed.

        Args:
            logins: of the emitters that are known.
        """
        self._forget_old(now)
        begin = min(stretch.position for stretch in stretches).position
        is_known = all(logins.get(emitter_id) is not None for emitter_id in self.emitters)
        if not self._first <= begin <= self._last or not is_known or any(each.until for each in stretches):
            return None
        source = _NewestItems(self._kept, self._last, logins)
        return cut_slice(source.page, source, types, stretches, bounds)

    def _clear(self, first: int) -> None:
        self._kept.clear()
        self.emitters.clear()
        self._bytes = 0
        self._first = first

    def _forget_old(self, now: float) -> None:
        while (first := self._kept.get(self._first)) is not None and (
            first.since < now - self._fresh_seconds
            or len(self._kept) > self._most_envelopes
            or self._bytes > MOST_BYTES
        ):
            self._bytes -= first.size
            for position in range(first.sealed.first, first.sealed.last + 1):
                del self._kept[position]
            self._first = first.sealed.last + 1


class _NewestItems:
    """The lists and the items of envelopes in memory, for one slice; see ``ItemSource``.

    Args:
        kept: the envelopes by position.
        last: the position of the last of them.
        logins: of their emitters.
    """

    def __init__(self, kept: Mapping[int, _Kept], last: int, logins: Mapping[int, str | None]) -> None:
        self._kept = kept
        self._last = last
        self._logins = logins
        self._events: dict[str, PutEvent] = {}

    def page(self, types: frozenset[int], place: Place) -> ListPage:
        """List all events of some types from a place on."""
        if place.position > self._last:
            return ListPage(place, place, ())
        contents = [
            (position, self._kept[position].content(position)) for position in range(place.position, self._last + 1)
        ]
        events = [
            self._listed(content, position, index, event)
            for position, content in contents
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
