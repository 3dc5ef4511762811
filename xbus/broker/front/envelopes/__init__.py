"""Envelopes as emitters use them: open ones in memory, sealed and pruned ones by way of the journal.

It checks, counts and writes; it never reads a socket. ``front.front`` is the only door to it.
"""

from xbus.broker.front.envelopes.checks import Checks, NewEvent
from xbus.broker.front.envelopes.closed import content_differs
from xbus.broker.front.envelopes.directory import EnvelopeDirectory, Known
from xbus.broker.front.envelopes.ended_by_others import OpenTimeouts, OperatorCancels
from xbus.broker.front.envelopes.futures import ignore
from xbus.broker.front.envelopes.intake import EmitterIntake, Intake, TypeIntake
from xbus.broker.front.envelopes.open import OpenEnvelope
from xbus.broker.front.envelopes.open_too_long import OpenTooLong
from xbus.broker.front.envelopes.options import head_of, head_of_array, tags_of, tags_of_array
from xbus.broker.front.envelopes.replies import ReplyRequests
from xbus.broker.front.envelopes.state import EndedEvent, EnvelopeLimits, envelope_unknown, event_unknown
from xbus.broker.front.envelopes.throttle import SLOW_DOWN, Throttle

__all__ = [
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
    "head_of_array",
    "ignore",
    "tags_of",
    "tags_of_array",
]
