"""Small envelopes: those that are brought whole, in one call; pure."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.log.note import DeliveryNote, FirstWords, headers_map
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.log.segments import Segment
from xbus.rpc.messages import HeadersMap

SMALL_BYTES = 64 * 1024
"""The items and headers of a small envelope have this many bytes at most. More per call makes others wait longer for
their turn."""

WireBatches: TypeAlias = list[tuple[int, int, bytes, list[list[int]] | None]]
WireEvent: TypeAlias = tuple[str, str, WireBatches] | tuple[str, str, WireBatches, HeadersMap]
BundleEntry: TypeAlias = tuple[str, list[WireEvent]] | tuple[str, list[WireEvent], DeliveryNote]


class SmallEnvelope(NamedTuple):
    """An envelope with all of its items.

    Args:
        envelope: as the log has it.
        batches: for each of its events the items.
        size: how many bytes the items and the headers have.
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

    def on_wire(self, words: FirstWords, wants_note: bool, wants_headers: bool) -> BundleEntry:
        """The envelope as ``xbus.take_envelopes`` takes it, with what its recipient wants to be told of it.

        Args:
            words: what may be told of the envelope.
            wants_note: whether the recipient wants the note.
            wants_headers: whether it wants headers.
        """
        events: list[WireEvent] = []
        of_envelope = words.headers
        for event, batches in zip(self.envelope.events, self.batches, strict=True):
            found = (str(event.event_id), event.type_name, [batch.on_wire() for batch in batches])
            headers = headers_map(event.tags, of_envelope) if wants_headers else None
            events.append((*found, headers) if headers else found)
            of_envelope = None
        envelope_id = str(self.envelope.envelope_id)
        note = words.note if wants_note else None
        return (envelope_id, events) if note is None else (envelope_id, events, note)

    @classmethod
    def of_segments(cls, envelope: LogEnvelope, of_events: Sequence[Sequence[Segment]]) -> "SmallEnvelope | None":
        """The envelope with these segments; None where some items are missing, or where it is not small.

        Args:
            of_events: those of each event, in index order.
        """
        size = len(envelope.head.headers or b"")
        for event, found in zip(envelope.events, of_events, strict=True):
            if sum([segment.items for segment in found]) != event.items:
                return None
            size += event.tags.size + sum([len(segment.data) for segment in found])
        if size > SMALL_BYTES:
            return None
        return cls(envelope, [list(join_small(found)) for found in of_events], size)
