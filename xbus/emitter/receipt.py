"""The receipt that an emitter keeps once the bus has taken an envelope."""

from typing import NamedTuple

from xbus.rpc.codec import Value
from xbus.rpc.messages import EnvelopeReceipt
from xbus.rpc.shapes import AnswerReader

_RECEIPT = AnswerReader("xbus.end_envelope", EnvelopeReceipt)


class Receipt(NamedTuple):
    """The proof that an envelope is sealed: durable, complete, and from now on delivered as a whole.

    Attributes:
        envelope_id: the envelope's UUID as text.
        position: its position among all sealed envelopes of the bus, gapless, from 1 on.
        events: the number of its events.
        items: the number of all their items.
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
    def of(cls, answer: Value) -> "Receipt":
        """Read the receipt in the answer of ``xbus.end_envelope``.

        Raises:
            Refused: the answer is no receipt (``bad_answer``).
        """
        told = _RECEIPT.read(answer)
        return cls(
            envelope_id=told["envelope_id"],
            position=told["position"],
            events=told["events"],
            items=told["items"],
            hash=told["hash"],
            queued=told.get("queued", False),
        )
