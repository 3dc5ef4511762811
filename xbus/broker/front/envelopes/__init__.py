"""Envelopes as emitters use them: open ones in memory, sealed and pruned ones by way of the journal.

It checks, counts and writes; it never reads a socket. ``front.front`` is the only door to it.
"""

from xbus.broker.front.envelopes.checks import (
    ID_BYTES,
    SLOW_DOWN,
    Checks,
    EnvelopeLimits,
    NewEvent,
    Throttle,
    head_of,
    heads_of_arrays,
    not_plain,
    number_of,
    tags_of,
    tags_of_array,
)
from xbus.broker.front.envelopes.closed import content_differs
from xbus.broker.front.envelopes.directory import EmitterIntake, EnvelopeDirectory, Intake, Known, TypeIntake
from xbus.broker.front.envelopes.ended_by_others import OpenTimeouts, OpenTooLong, OperatorCancels
from xbus.broker.front.envelopes.open import OpenEnvelope
from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.envelopes.state import EndedEvent, envelope_unknown, event_unknown

__all__ = [
    "ID_BYTES",
    "SLOW_DOWN",
    "Checks",
    "EmitterIntake",
    "EndedEvent",
    "EnvelopeDirectory",
    "EnvelopeLimits",
    "Intake",
    "Known",
    "NewEvent",
    "OpenEnvelope",
    "OpenTimeouts",
    "OpenTooLong",
    "OperatorCancels",
    "ReplyRequests",
    "Throttle",
    "TypeIntake",
    "content_differs",
    "envelope_unknown",
    "event_unknown",
    "head_of",
    "heads_of_arrays",
    "not_plain",
    "number_of",
    "tags_of",
    "tags_of_array",
]
