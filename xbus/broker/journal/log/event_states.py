"""The state of an event for people: worked out when somebody asks, and stored nowhere; pure."""

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol

from xbus.states import DeliveryState, EnvelopeState


class EventState(StrEnum):
    """The state of an event at the consumer roles of its graph."""

    PENDING = "pending"
    """Nobody has it yet, and nothing keeps it from coming by itself. Also without any consumer."""
    DELIVERING = "delivering"
    """It is being handed over for the first time, as far as the journal can tell."""
    DONE = "done"
    """All have it."""
    PARTIAL = "partial"
    """Some have it, others don't have it yet."""
    STOPPED = "stopped"
    """Nobody has it, and at least one role won't get it by itself."""
    CANCELLED = "cancelled"
    """Its envelope was cancelled."""


DONE = "done"
"""An envelope at a role that has committed it."""

OWED = "owed"
"""An envelope at a role whose turn is to come."""

RETRIED = "retried"
"""An envelope that was parked for a role, and came again as another one."""

DROPPED = "dropped"
"""An envelope that somebody decided to give up for a role: also what that is called in the history."""

REROUTED = "rerouted"
"""An envelope that goes another way, or to another role, instead; likewise."""

_STOPPED = frozenset({DeliveryState.PARKED, RETRIED, DROPPED, REROUTED})
"""An envelope that won't come by itself: parked, cancelled, or replaced by a repeat."""


class RoleDelivery(Protocol):
    """The state of an envelope at one consumer role."""

    @property
    def state(self) -> str:
        """:data:`DONE`, :data:`OWED`, :data:`RETRIED`, :data:`DROPPED`, or a :class:`~xbus.states.DeliveryState`."""

    @property
    def under_way(self) -> bool:
        """True if the role may have it in its hands now."""


def event_state(envelope: EnvelopeState, standings: Collection[RoleDelivery]) -> EventState:
    """Choose the state of an event; if several fit, the one that needs a person most.

    Args:
        envelope: the state of its envelope.
        standings: of the consumer roles that the event's graph leads to and that are or were owed the envelope.
    """
    if envelope is EnvelopeState.CANCELLED:
        return EventState.CANCELLED
    states = {standing.state for standing in standings}
    if states == {DONE}:
        return EventState.DONE
    if DONE in states:
        return EventState.PARTIAL
    if not states.isdisjoint(_STOPPED):
        return EventState.STOPPED
    return EventState.DELIVERING if any(standing.under_way for standing in standings) else EventState.PENDING
