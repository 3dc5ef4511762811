"""Keeps the newest items of envelopes that come in parts, so that nobody reads them back; pure.

The database holds all of them too, and is the only truth: whoever finds nothing here reads there.
"""

from collections.abc import Iterable
from uuid import UUID

from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes import Append

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
            self._bytes += _memory(segment)
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
            self._bytes -= _memory(segment)


def _memory(segment: Segment) -> int:
    return SEGMENT_BYTES + len(segment.data)
