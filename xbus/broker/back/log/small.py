"""Small envelopes: those that are brought whole, in one call; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.log.note import DeliveryNote
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.log.segments import Segment

SMALL_BYTES = 64 * 1024
"""The items of a small envelope have this many bytes at most. More per call makes others wait longer for their turn."""

WireEvent: TypeAlias = tuple[str, str, list[tuple[int, int, bytes, list[list[int]] | None]]]
BundleEntry: TypeAlias = tuple[str | list[WireEvent] | DeliveryNote, ...]


@dataclass(frozen=True, slots=True)
class SmallEnvelope:
    """An envelope with all of its items.

    Args:
        envelope: as the log has it.
        batches: for each of its events the items.
        size: how many bytes the items have.
    """

    envelope: LogEnvelope
    batches: Sequence[Sequence[RunBatch]]
    size: int

    @property
    def envelope_id(self) -> UUID:
        return self.envelope.envelope_id

    @property
    def position(self) -> int:
        return self.envelope.position

    def with_items(self, batches: Sequence[Sequence[RunBatch]]) -> "SmallEnvelope":
        """The same envelope with what a worker made of its items."""
        return SmallEnvelope(self.envelope, batches, sum(batch.size for of_event in batches for batch in of_event))

    def on_wire(self, *note: DeliveryNote) -> BundleEntry:
        """The envelope as ``xbus.take_envelopes`` takes it, with its note for a recipient that wants one."""
        events = [
            (str(event.event_id), event.type_name, [batch.on_wire() for batch in batches])
            for event, batches in zip(self.envelope.events, self.batches, strict=True)
        ]
        return (str(self.envelope.envelope_id), events, *note)

    @classmethod
    def of_segments(cls, envelope: LogEnvelope, segments: Mapping[UUID, Sequence[Segment]]) -> "SmallEnvelope | None":
        """The envelope with these segments; None where some items are missing, or where it is not small.

        Args:
            segments: by the id of the event under which they are stored, in index order.
        """
        of_events = [segments.get(event.segments_id, ()) for event in envelope.events]
        size = 0
        for event, found in zip(envelope.events, of_events, strict=True):
            if sum(segment.items for segment in found) != event.items:
                return None
            size += sum(len(segment.data) for segment in found)
        if size > SMALL_BYTES:
            return None
        return cls(envelope, [list(join_small(found)) for found in of_events], size)
