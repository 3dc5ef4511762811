"""The note that goes with an envelope to recipients that want one: whose it is, and where it stands; pure."""

from typing import NamedTuple

from xbus.broker.journal.log.reading import LogEnvelope


class DeliveryNote(NamedTuple):
    """The facts of an envelope that its recipient is told, once, in this order.

    Args:
        emitter: the login of its emitter; None if it is not known any more.
        key: the emitter's name for it, if it has one.
        ordering_key: as in ``LogEnvelope``.
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
        return cls(emitter, envelope.key, envelope.ordering_key, envelope.position, sealed_at, max(attempt, 1))
