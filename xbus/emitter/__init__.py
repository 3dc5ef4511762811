"""Sending: ``Emitter`` for ordinary programs, ``AsyncEmitter`` for those that run an asyncio loop.

An item's way through this package: ``Event.send`` puts it into a ``Batch``, a full batch becomes a
``RepeatableCall`` in the envelope's ``Stream``, which sends it through the ``Session`` and keeps it in ``PendingCalls``
until it need never be repeated.
"""

from xbus.emitter.asynchronous import AsyncEmitter
from xbus.emitter.envelope import AsyncEnvelope, AsyncEvent
from xbus.emitter.options import Options
from xbus.emitter.receipt import Receipt
from xbus.emitter.synchronous import Emitter, Envelope, Event

__all__ = [
    "AsyncEmitter",
    "AsyncEnvelope",
    "AsyncEvent",
    "Emitter",
    "Envelope",
    "Event",
    "Options",
    "Receipt",
]
