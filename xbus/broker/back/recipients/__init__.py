"""The recipients that are registered now: calls to them, who is free, who is slow, and who fails at everything.

It knows nothing of envelopes beyond what a call carries. Runs and everything above them import it; it imports only
the log.
"""

from xbus.broker.back.recipients.abilities import Abilities
from xbus.broker.back.recipients.circuit_breaker import BreakerProbes, CircuitBreaker, CircuitBreakers
from xbus.broker.back.recipients.failures import (
    FailureClass,
    ItemError,
    RecipientFailed,
    failure_of_report,
    fault_among_many,
    no_output,
    no_way,
    own_fault,
)
from xbus.broker.back.recipients.handshake import Handshake, introduce
from xbus.broker.back.recipients.hosts import RecipientHosts
from xbus.broker.back.recipients.own_registrations import OwnRegistrations
from xbus.broker.back.recipients.recipient import CallTimeouts, RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.responses import BundleResult, BundleStatus, Transformed
from xbus.broker.back.recipients.served import RoleEvents, ServedRole
from xbus.broker.back.recipients.slots import Absent, AnyOf, Slots, This

__all__ = [
    "Abilities",
    "Absent",
    "AnyOf",
    "BreakerProbes",
    "BundleResult",
    "BundleStatus",
    "CallTimeouts",
    "CircuitBreaker",
    "CircuitBreakers",
    "FailureClass",
    "Handshake",
    "ItemError",
    "OwnRegistrations",
    "RecipientFailed",
    "RecipientHosts",
    "RecipientProxy",
    "Registry",
    "RoleEvents",
    "ServedRole",
    "Slots",
    "This",
    "Transformed",
    "failure_of_report",
    "fault_among_many",
    "introduce",
    "no_output",
    "no_way",
    "own_fault",
]
