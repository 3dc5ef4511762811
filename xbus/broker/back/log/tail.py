"""The tail of the log: the envelopes that this process sealed last, in memory, so that nobody reads them back; pure.

The database holds all of it too, and is the only truth: whoever finds nothing here reads there.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes import PutEnvelope, PutEvent, Sealed, SealedEnvelope, SealedGroup

TAIL_BYTES = 8 * 1024 * 1024
"""How much memory the tail may take. More spares reads to those who lag a little."""

ENVELOPE_BYTES = 2 * 1024
"""How much memory an envelope takes beside its items, about."""


GROUPED_BYTES = 768
"""The same of an envelope that came in a group, whose objects are fewer."""


class LogTail:
    """The envelopes that were sealed last, without gaps.

    Args:
        max_bytes: the oldest go when all take more than this.
    """

    def __init__(self, max_bytes: int = TAIL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._sealed: dict[int, Sealed] = {}
        self._events: dict[bytes, int] = {}
        """The positions of events, by their ids."""
        self._first = 1
        self._last = 0

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return self._bytes

    def add(self, sealed: Iterable[Sealed]) -> None:
        """Add envelopes that are durable, in position order; what lies before a gap goes."""
        for each in sealed:
            if each.first != self._last + 1:
                self._clear(each.first)
            self._last = each.last
            positions = range(each.first, each.last + 1)
            self._sealed.update(dict.fromkeys(positions, each))
            if isinstance(each, SealedGroup):
                self._events.update(zip(each.group.event_ids, positions, strict=True))
                self._bytes += GROUPED_BYTES * len(positions) + each.group.size
            else:
                self._events.update((event.event_id.bytes, each.first) for event in _events(each))
                self._bytes += _memory(each, each.first)
        while self._bytes > self._max_bytes:
            self._drop_first()

    def _clear(self, first: int) -> None:
        self._sealed.clear()
        self._events.clear()
        self._bytes = 0
        self._first = first

    def _drop_first(self) -> None:
        first = self._sealed.pop(self._first)
        if isinstance(first, SealedGroup):
            self._events.pop(first.group.event_ids[self._first - first.first], None)
        else:
            for event in _events(first):
                self._events.pop(event.event_id.bytes, None)
        self._bytes -= _memory(first, self._first)
        self._first += 1

    def after(self, position: int, limit: int) -> list[LogEnvelope]:
        """The next envelopes above ``position``, in position order; none where the next one is not here.

        Args:
            limit: how many at the most.
        """
        found: list[LogEnvelope] = []
        for each in range(position + 1, position + limit + 1):
            sealed = self._sealed.get(each)
            content = None if sealed is None else _content(sealed, each)
            if content is None:
                break
            found.append(_in_log(content, each))
        return found

    def contents(self, position: int) -> list[Sequence[Segment]] | None:
        """The segments of each event of an envelope, in order; None where it is not here."""
        sealed = self._sealed.get(position)
        content = None if sealed is None else _content(sealed, position)
        return None if content is None else [_segments(event) for event in content.events]

    def segments(self, event_ids: Iterable[UUID]) -> dict[UUID, Sequence[Segment]]:
        """The segments of those events that are here, by the id under which they are stored."""
        found: dict[UUID, Sequence[Segment]] = {}
        for event_id in event_ids:
            position = self._events.get(event_id.bytes)
            content = None if position is None else _content(self._sealed[position], position)
            for event in () if content is None else content.events:
                if event.event_id == event_id and event.items:
                    found[event_id] = _segments(event)
        return found


def _content(sealed: Sealed, position: int) -> PutEnvelope | None:
    return sealed.envelope(position) if isinstance(sealed, SealedGroup) else sealed.content


def _events(sealed: SealedEnvelope) -> Sequence[PutEvent]:
    return () if sealed.content is None else sealed.content.events


def _segments(event: PutEvent) -> Sequence[Segment]:
    return [Segment(0, event.items, event.data)] if event.items else ()


def _memory(sealed: Sealed, position: int) -> int:
    if isinstance(sealed, SealedGroup):
        return GROUPED_BYTES + sealed.group.size_at(position - sealed.first)
    return ENVELOPE_BYTES + (0 if sealed.content is None else sealed.content.size + sealed.content.header_bytes)


def _in_log(content: PutEnvelope, position: int) -> LogEnvelope:
    events = tuple(
        [
            LogEvent(event.event_id, event.type_name, event.graph_id, event.items, tags=event.tags)
            for event in content.events
        ]
    )
    about = (content.head, content.emitter_id, content.at, content.size)
    return LogEnvelope(content.envelope_id, position, events, None, *about)
