"""The receipt that an emitter keeps once the bus has taken an envelope."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Receipt:
    """The proof that an envelope is sealed: durable, complete, and from now on delivered as a whole.

    Attributes:
        envelope_id: the envelope's UUID as text.
        position: its place among all sealed envelopes of the bus, gapless, from 1 on.
        events: how many events it holds.
        items: how many items these hold together.
        hash: a hash over the content, the same for the same content.
        queued: whether it is durable in the emitter's outbox, not yet at the bus: then its id is the outbox's own, its
            position 0, and the hash empty.
    """

    envelope_id: str
    position: int
    events: int
    items: int
    hash: bytes
    queued: bool = False

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "Receipt":
        """The receipt in the answer of ``xbus.end_envelope`` or ``xbus.put_envelope``."""
        return cls(
            envelope_id=answer["envelope_id"],
            position=answer["position"],
            events=answer["events"],
            items=answer["items"],
            hash=answer["hash"],
            queued=answer.get("queued", False),
        )
