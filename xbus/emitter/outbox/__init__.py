"""The outbox of an emitter: a local file that keeps whole envelopes until the bus has them.

``Outbox`` is what the file holds. ``QueueSession`` puts it in the place of the front, for the calls that make an
envelope; ``OutboxSender`` sends what waits, from a running emitter or from ``xbus.emitter.flushing``.
"""

from xbus.emitter.outbox.box import ENVELOPE_BYTES, Outbox, OutboxStatus, QueuedEnvelope, QueuedEvent
from xbus.emitter.outbox.file import locked

__all__ = ["ENVELOPE_BYTES", "Outbox", "OutboxStatus", "QueuedEnvelope", "QueuedEvent", "locked"]
