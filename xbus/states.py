"""Every life cycle of the bus as a table of legal moves; nothing else decides what may follow what."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class EnvelopeState(StrEnum):
    """What became of an envelope."""

    OPEN = "open"
    """Its emitter still sends; nobody else sees it."""
    RECEIVED = "received"
    """Sealed: it has a position, never changes again, and is delivered."""
    CANCELLED = "cancelled"
    """Given up before it was sealed; nobody ever sees it."""


class DeliveryState(StrEnum):
    """Why an envelope has a delivery row of its own for a role; an envelope that goes the normal way has none."""

    WAITING = "waiting"
    """A worker that it needs is absent, or a bulk worker has not made yet what it needs."""
    RETRY = "retry"
    """An attempt went wrong, or may have: it comes again on its own, at the moment that its row says."""
    HELD = "held"
    """Its role wants order, and an envelope before it with the same ordering key has a row: that one comes first. Once
    it is the lowest of its key it is handed over as it is, as one in its turn that has no row either."""
    PARKED = "parked"
    """Its last attempt failed; a person decides."""
    SETTLED = "settled"
    """Delivered, dropped by a person, or parked and sent again as another envelope: the row goes."""


class AttemptState(StrEnum):
    """How far a bulk worker has come with the output of a node for an event; where there is no attempt, nowhere."""

    BUILDING = "building"
    """Its worker makes it, and renews its lease meanwhile."""
    READY = "ready"
    """All of it is here and was checked: it serves every run of the event."""
    FAILED = "failed"
    """Its worker said that it can't."""
    ABANDONED = "abandoned"
    """Its worker was not heard of in time, or nobody wants it any more: what it still writes counts for nothing."""


class ItemState(StrEnum):
    """What became of an item that a recipient refused and that was parked alone, the rest of its event going on."""

    PARKED = "parked"
    """A person decides."""
    RESUMED = "resumed"
    """It was sent again, maybe corrected, as an envelope of its own."""
    DROPPED = "dropped"
    """A person decided that its role does without it."""


class PresenceState(StrEnum):
    """How a role's recipient is, as operators see it."""

    ABSENT = "absent"
    """No recipient serves the role."""
    PRESENT = "present"
    """One does."""
    SILENT = "silent"
    """It is registered and has missed pings or heartbeats."""
    TROUBLED = "troubled"
    """One envelope after the other fails at it: it is probed now and then, and no attempts are counted meanwhile."""
    DETACHED = "detached"
    """An operator took it off the bus: it is owed nothing until it is attached again."""


class ReplyState(StrEnum):
    """How far an immediate reply has come."""

    ASKED = "asked"
    """Its emitter waits for it."""
    HELD = "held"
    """It is here; the recipient that gave it holds the envelope open until that is sealed or cancelled."""
    GIVEN = "given"
    """It is here, and nobody holds the envelope open for its sake any more."""
    FAILED = "failed"
    """There is none, and what the recipient began was rolled back; its emitter may ask again."""


class TrackingState(StrEnum):
    """How far the person who looks after a failure has come; the names are those of xbus.broker 0.2.0."""

    UNPROCESSED = "unprocessed"
    """Nobody has looked at it yet."""
    PROCESSING = "processing"
    ON_HOLD = "on_hold"
    CORRECTED = "corrected"
    WON_T_FIX = "won_t_fix"


class IllegalMove(Exception):
    """A life cycle was asked for a move that its table does not hold: a fault of the program, not of its user."""


ENVELOPE_MOVES: Mapping[EnvelopeState, frozenset[EnvelopeState]] = {
    EnvelopeState.OPEN: frozenset({EnvelopeState.RECEIVED, EnvelopeState.CANCELLED}),
    EnvelopeState.RECEIVED: frozenset(),
    EnvelopeState.CANCELLED: frozenset(),
}

DELIVERY_MOVES: Mapping[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.WAITING: frozenset(
        {DeliveryState.WAITING, DeliveryState.RETRY, DeliveryState.PARKED, DeliveryState.SETTLED}
    ),
    DeliveryState.RETRY: frozenset(
        {DeliveryState.WAITING, DeliveryState.RETRY, DeliveryState.PARKED, DeliveryState.SETTLED}
    ),
    DeliveryState.HELD: frozenset(
        {
            DeliveryState.HELD,
            DeliveryState.WAITING,
            DeliveryState.RETRY,
            DeliveryState.PARKED,
            DeliveryState.SETTLED,
        }
    ),
    DeliveryState.PARKED: frozenset({DeliveryState.RETRY, DeliveryState.HELD, DeliveryState.SETTLED}),
    DeliveryState.SETTLED: frozenset(),
}

ATTEMPT_MOVES: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.BUILDING: frozenset({AttemptState.READY, AttemptState.FAILED, AttemptState.ABANDONED}),
    # Its envelope is about to be removed, or some of it is not there any more.
    AttemptState.READY: frozenset({AttemptState.ABANDONED}),
    AttemptState.FAILED: frozenset(),
    AttemptState.ABANDONED: frozenset(),
}

ITEM_MOVES: Mapping[ItemState, frozenset[ItemState]] = {
    ItemState.PARKED: frozenset({ItemState.RESUMED, ItemState.DROPPED}),
    ItemState.RESUMED: frozenset(),
    ItemState.DROPPED: frozenset(),
}

REPLY_MOVES: Mapping[ReplyState, frozenset[ReplyState]] = {
    ReplyState.ASKED: frozenset({ReplyState.ASKED, ReplyState.HELD, ReplyState.FAILED}),
    ReplyState.HELD: frozenset({ReplyState.GIVEN}),
    ReplyState.GIVEN: frozenset(),
    ReplyState.FAILED: frozenset({ReplyState.ASKED}),
}

TRACKING_MOVES: Mapping[TrackingState, frozenset[TrackingState]] = {
    state: frozenset(TrackingState) - {state, TrackingState.UNPROCESSED} for state in TrackingState
}
"""A person may change their mind at any time; only that somebody has looked can't be undone."""

State = TypeVar("State", bound=StrEnum)


def check_move(moves: Mapping[State, frozenset[State]], old: State, new: State) -> None:
    """Let a legal move pass.

    Raises:
        IllegalMove: ``new`` does not follow ``old`` in ``moves``.
    """
    if new not in moves[old]:
        raise IllegalMove(f"{type(old).__name__} can't go from {old} to {new}")


def predecessors(moves: Mapping[State, frozenset[State]], new: State) -> frozenset[State]:
    """The states from which ``new`` may be reached: what a compare-and-set update compares with."""
    return frozenset(old for old, following in moves.items() if new in following)
