"""The tail of the log: the envelopes that this process sealed last, in memory, so that nobody reads them back; pure.

The database holds all of it too, and is the only truth: whoever finds nothing here reads there.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes import PutEnvelope, SealedEnvelope

TAIL_BYTES = 8 * 1024 * 1024
"""How much memory the tail may take. More spares reads to those who lag a little."""

ENVELOPE_BYTES = 2 * 1024
"""How much memory an envelope takes beside its items, about."""


class LogTail:
    """The envelopes that were sealed last, without gaps.

    Args:
        max_bytes: the oldest go when all take more than this.
    """

    def __init__(self, max_bytes: int = TAIL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._contents: dict[int, PutEnvelope | None] = {}
        self._segments: dict[UUID, Sequence[Segment]] = {}
        self._first = 1
        self._last = 0

    @property
    def size(self) -> int:
        """The bytes that it takes, about."""
        return self._bytes

    def add(self, sealed: Iterable[SealedEnvelope]) -> None:
        """Add envelopes that are durable, in position order; what lies before a gap goes."""
        for each in sealed:
            position, content = each.receipt.position, each.content
            if position != self._last + 1:
                self._clear(position)
            self._contents[position] = content
            self._last = position
            self._bytes += _memory(content)
            for event in content.events if content is not None else ():
                if event.items:
                    self._segments[event.event_id] = [Segment(0, event.items, event.data)]
        while self._bytes > self._max_bytes:
            self._drop_first()

    def _clear(self, first: int) -> None:
        self._contents.clear()
        self._segments.clear()
        self._bytes = 0
        self._first = first

    def _drop_first(self) -> None:
        content = self._contents.pop(self._first)
        for event in content.events if content is not None else ():
            self._segments.pop(event.event_id, None)
        self._bytes -= _memory(content)
        self._first += 1

    def after(self, position: int, limit: int) -> list[LogEnvelope]:
        """The next envelopes above ``position``, in position order; none where the next one is not here.

        Args:
            limit: how many at the most.
        """
        found: list[LogEnvelope] = []
        for each in range(position + 1, position + limit + 1):
            content = self._contents.get(each)
            if content is None:
                break
            found.append(_in_log(content, each))
        return found

    def contents(self, position: int) -> list[Sequence[Segment]] | None:
        """The segments of each event of an envelope, in order; None where it is not here."""
        content = self._contents.get(position)
        return None if content is None else [self._segments.get(event.event_id, ()) for event in content.events]

    def segments(self, event_ids: Iterable[UUID]) -> dict[UUID, Sequence[Segment]]:
        """The segments of those events that are here, by the id under which they are stored."""
        return {event_id: self._segments[event_id] for event_id in event_ids if event_id in self._segments}


def _memory(content: PutEnvelope | None) -> int:
    return ENVELOPE_BYTES + (0 if content is None else content.size + content.header_bytes)


def _in_log(content: PutEnvelope, position: int) -> LogEnvelope:
    events = tuple(
        [
            LogEvent(event.event_id, event.type_name, event.graph_id, event.items, tags=event.tags)
            for event in content.events
        ]
    )
    about = (content.ordering_key, content.emitter_id, content.idempotency_key, content.at, content.headers)
    return LogEnvelope(content.envelope_id, position, events, None, *about, content.size)
