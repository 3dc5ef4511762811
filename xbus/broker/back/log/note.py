"""The note that goes with an envelope to recipients that want one: whose it is, and where it stands. And the headers,
which go with each event to recipients that want them; pure."""

from typing import NamedTuple

from xbus.broker.journal.log.reading import LogEnvelope
from xbus.headers import NO_TAGS, EventTags
from xbus.rpc.messages import HeadersMap


class DeliveryNote(NamedTuple):
    """The facts of an envelope that its recipient is told, once, in this order.

    Args:
        emitter: the login of its emitter; None if it is not known any more.
        key: the emitter's name for it, if it has one.
        ordering_key: as in ``EnvelopeHead``.
        position: its place in the log.
        sealed_at: when it was sealed, in seconds of unix time.
        attempt: how often it is handed to this recipient, with this time; 1 for the first time.
    """

    emitter: str | None
    key: str | None
    ordering_key: str | None
    position: int
    sealed_at: float | None
    attempt: int

    @classmethod
    def of(cls, envelope: LogEnvelope, emitter: str | None, attempt: int) -> "DeliveryNote":
        """Write the note of an envelope."""
        sealed_at = None if envelope.sealed_at is None else envelope.sealed_at.timestamp()
        return cls(
            emitter, envelope.head.key, envelope.head.ordering_key, envelope.position, sealed_at, max(attempt, 1)
        )


class FirstWords(NamedTuple):
    """The facts that the first call about an envelope brings.

    Args:
        note: None in an event with an immediate reply, whose envelope is not sealed yet.
        headers: those of the envelope, packed.
    """

    note: DeliveryNote | None = None
    headers: bytes | None = None


NOTHING_SAID = FirstWords()


def headers_map(tags: EventTags, of_envelope: bytes | None) -> HeadersMap:
    """Write the headers that go with an event; empty where there are none.

    Args:
        of_envelope: those of its envelope, where nothing has told them yet.
    """
    told: HeadersMap = {}
    if of_envelope is not None:
        told["envelope_headers"] = of_envelope
    if tags is not NO_TAGS:
        if tags.headers is not None:
            told["headers"] = tags.headers
        if tags.partition_key is not None:
            told["partition_key"] = tags.partition_key
    return told
