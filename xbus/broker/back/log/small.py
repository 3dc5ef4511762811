"""Small envelopes: those that are brought whole, in one call; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.log.note import headers_map
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.log.segments import Segment
from xbus.headers import NO_TAGS
from xbus.rpc.messages import HeadersMap

SMALL_BYTES = 64 * 1024
"""The items and headers of a small envelope have this many bytes at most. More per call makes others wait longer for
their turn."""

T = TypeVar("T", bound=tuple[object, ...])

WireBatches: TypeAlias = list[tuple[int, int, bytes, list[list[int]] | None]]
WireEvent: TypeAlias = tuple[str, str, WireBatches] | tuple[str, str, WireBatches, HeadersMap]
WireNote: TypeAlias = tuple[str | None, str | None, str | None, int, float | None, int]
"""The fields of a ``DeliveryNote``."""
BundleEntry: TypeAlias = tuple[str, list[WireEvent]] | tuple[str, list[WireEvent], WireNote]


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

    @classmethod
    def of_columns(
        cls, envelopes: Sequence[LogEnvelope], batches: Sequence[Sequence[Sequence[RunBatch]]]
    ) -> "list[SmallEnvelope | None]":
        """Give envelopes of one event each with their items; None for each that is not small.

        Args:
            batches: of each envelope, for its event.
        """
        sizes = [
            envelope.size + len(envelope.head.headers or b"")
            if envelope.events[0].tags is NO_TAGS
            else envelope.size + len(envelope.head.headers or b"") + envelope.events[0].tags.size
            for envelope in envelopes
        ]
        small = named_tuples(cls, envelopes, batches, sizes)
        return [each if each.size <= SMALL_BYTES else None for each in small]


def named_tuples(kind: type[T], *columns: Iterable[object]) -> Iterator[T]:
    """Make named tuples of columns; no function of Python is called for each."""
    return map(tuple.__new__, repeat(kind), zip(*columns, strict=False))


def texts_of(ids: Iterable[bytes]) -> list[str]:
    """Write ids of 16 bytes as UUIDs; no function of Python is called for each."""
    return [f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" for text in map(bytes.hex, ids)]


def bundle_on_wire(
    bundle: Sequence[SmallEnvelope], logins: Mapping[int, str | None] | None, *, wants_headers: bool
) -> list[BundleEntry]:
    """Write envelopes as ``xbus.take_envelopes`` takes them, with what their recipient wants to be told of them.

    Args:
        logins: of their emitters, for a recipient that wants notes; None for one that wants none.
        wants_headers: whether it wants headers.
    """
    envelopes = [small.envelope for small in bundle]
    texts = texts_of([envelope.id for envelope in envelopes])
    are_single = False not in [len(small.batches) == 1 and len(small.batches[0]) <= 1 for small in bundle]
    make_events = _single_events if are_single else _events
    events = make_events(bundle, wants_headers=wants_headers)
    if logins is None:
        return list(zip(texts, events, strict=True))
    moments = [None if envelope.sealed_at is None else envelope.sealed_at.timestamp() for envelope in envelopes]
    heads = [envelope.head for envelope in envelopes]
    notes = zip(
        [logins[envelope.emitter_id] for envelope in envelopes],
        [head.key for head in heads],
        [head.ordering_key for head in heads],
        [envelope.position for envelope in envelopes],
        moments,
        repeat(1),
        strict=False,
    )
    return list(zip(texts, events, notes, strict=True))


def _single_events(bundle: Sequence[SmallEnvelope], *, wants_headers: bool) -> list[list[WireEvent]]:
    """Write the events of envelopes of one event and one batch; no function of Python is called for most."""
    events = [small.envelope.events[0] for small in bundle]
    ids = texts_of([event.id for event in events])
    names = [event.type_name for event in events]
    batches: list[WireBatches] = [[small.batches[0][0][:4]] if small.batches[0] else [] for small in bundle]
    if not wants_headers:
        return [[event] for event in zip(ids, names, batches, strict=True)]
    of_envelopes = [small.envelope.head.headers for small in bundle]
    told: list[HeadersMap] = [
        headers_map(event.tags, headers)
        if event.tags is not NO_TAGS
        else {}
        if headers is None
        else {"envelope_headers": headers}
        for event, headers in zip(events, of_envelopes, strict=True)
    ]
    return [
        [(event_id, name, of_event, headers)] if headers else [(event_id, name, of_event)]
        for event_id, name, of_event, headers in zip(ids, names, batches, told, strict=True)
    ]


def _events(bundle: Sequence[SmallEnvelope], *, wants_headers: bool) -> list[list[WireEvent]]:
    """Write the events of envelopes."""
    written: list[list[WireEvent]] = []
    for small in bundle:
        events: list[WireEvent] = []
        of_envelope = small.envelope.head.headers
        for event, batches in zip(small.envelope.events, small.batches, strict=True):
            found = (str(event.event_id), event.type_name, [batch.on_wire() for batch in batches])
            headers = headers_map(event.tags, of_envelope) if wants_headers else None
            events.append((*found, headers) if headers else found)
            of_envelope = None
        written.append(events)
    return written
