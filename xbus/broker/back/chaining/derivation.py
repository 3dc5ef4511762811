"""An envelope that is made of another: its id, its key, and the facts that go along; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from xbus.broker.back.log import DeliveryNote
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused
from xbus.headers import NO_TAGS, EventTags, pack_headers, unpack_headers
from xbus.ids import keyed_envelope_id, numbered_event_id
from xbus.rpc.messages import HeadersMap

CORRELATION_ID = "correlation_id"


@dataclass(frozen=True)
class Derivation:
    """The facts of an envelope that go along to the one that a node makes of it.

    Args:
        source_id: of the delivered envelope.
        emitter_id: the emitter that the bus has for the node.
        head: that of the delivered envelope, with a ``correlation_id`` among its headers: its own id where it has none.
            The key is the id of the delivered envelope: by it a repeated delivery finds what the first one made.
        generation: how many envelopes of this derivation were cancelled before, as their delivery broke off.
    """

    source_id: UUID
    emitter_id: int
    head: EnvelopeHead
    generation: int = 0

    @cached_property
    def envelope_id(self) -> UUID:
        """The id of the made envelope."""
        return keyed_envelope_id(self.emitter_id, str(self.source_id), self.generation)

    def event_id(self, number: int) -> UUID:
        """Compute the id of the event of this number, from 1."""
        return numbered_event_id(self.envelope_id, number)


def derive(source_id: UUID, emitter_id: int, note: DeliveryNote | None, said: HeadersMap) -> Derivation:
    """Tell what goes along.

    Args:
        note: of the delivered envelope.
        said: the headers that came with its first event.
    """
    ordering_key = None if note is None else note.ordering_key
    headers = _correlated(source_id, said.get("envelope_headers"))
    return Derivation(source_id, emitter_id, EnvelopeHead(ordering_key, str(source_id), headers))


def _correlated(source_id: UUID, headers: bytes | None) -> bytes | None:
    """Add a correlation id to headers that have none, unless they are as large as headers may be."""
    if headers is None:
        return pack_headers({CORRELATION_ID: str(source_id)})
    told: Mapping[str, object] = unpack_headers(headers)
    if CORRELATION_ID in told:
        return headers
    try:
        return pack_headers({**told, CORRELATION_ID: str(source_id)})
    except Refused:
        return headers


def tags_of(said: HeadersMap) -> EventTags:
    """Give the headers and the partition key of an event, which go along as they are."""
    tags = EventTags(said.get("headers"), said.get("partition_key"))
    return NO_TAGS if tags == NO_TAGS else tags
