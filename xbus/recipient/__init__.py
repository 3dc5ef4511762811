"""Receiving: subclass ``Worker``, ``BulkWorker`` or ``Consumer``, and ``run`` it.

An item's way through this package: the broker calls a verb of ``RecipientApi``, which gives a job to the
``AuthorThread``; there the ``EnvelopeDelivery`` of the envelope lets the author's method see it, and what a worker
answers goes back by ``outputs``.
"""

from xbus.recipient.base import Consumer, Recipient, Worker
from xbus.recipient.bulk import BulkWorker, Handover, Made
from xbus.recipient.envelope import Batch, Envelope, Event, Item, Out
from xbus.recipient.refusal import Refusal
from xbus.recipient.running import ServeOptions, run, serve

__all__ = [
    "Batch",
    "BulkWorker",
    "Consumer",
    "Envelope",
    "Event",
    "Handover",
    "Item",
    "Made",
    "Out",
    "Recipient",
    "Refusal",
    "ServeOptions",
    "Worker",
    "run",
    "serve",
]
