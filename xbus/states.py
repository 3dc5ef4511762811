"""Every life cycle of the bus as a table of legal moves; nothing else decides what may follow what."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class EnvelopeState(StrEnum):
    """The states of an envelope."""

    OPEN = "open"
    """Its emitter still sends; nobody else sees it."""
    RECEIVED = "received"
    """Sealed: it has a position, never changes again, and is delivered."""
    CANCELLED = "cancelled"
    """Its emitter or the broker cancelled it before the seal; nobody ever sees it."""


class DeliveryState(StrEnum):
    """The states of a delivery row; an envelope in its role's ordinary order has no row."""

    WAITING = "waiting"
    """A worker that it needs is absent, or a bulk worker has not made yet what it needs."""
    RETRY = "retry"
    """An attempt failed, or may have: it is redelivered on its own, at the moment in its row."""
    HELD = "held"
    """Blocked: its role is ordered, and an earlier envelope with the same ordering key has a row. Once it is the lowest
    of its key it is handed over like one without a row."""
    PARKED = "parked"
    """Its last attempt failed; a person decides."""
    SETTLED = "settled"
    """Delivered, dropped by a person, or parked and sent again as another envelope: the row goes."""


class AttemptState(StrEnum):
    """The states of an attempt to make the output of a node for an event."""

    BUILDING = "building"
    """Its worker makes it, and renews its lease meanwhile."""
    READY = "ready"
    """All of it is in the journal and was checked: it serves every run of the event."""
    FAILED = "failed"
    """Its worker said that it can't."""
    ABANDONED = "abandoned"
    """Its worker gave no sign of life in time, or nobody wants it any more. Its later writes don't count."""


class ItemState(StrEnum):
    """The states of a refused item that was parked alone while the rest of its event went on."""

    PARKED = "parked"
    """A person decides."""
    RESUMED = "resumed"
    """It was sent again, maybe corrected, as an envelope of its own."""
    DROPPED = "dropped"
    """A person decided that its role does without it."""


class PresenceState(StrEnum):
    """The states of a role's recipient, as operators see it."""

    ABSENT = "absent"
    """No recipient serves the role."""
    PRESENT = "present"
    """One does."""
    SILENT = "silent"
    """It is registered and has missed pings or heartbeats."""
    TROUBLED = "troubled"
    """One envelope after the other fails at it: it is probed now and then, and no attempts are counted meanwhile."""
    STANDBY = "standby"
    """One program of several: it waits until one that serves the role is lost."""
    LEAVING = "leaving"
    """One program of several: it gets nothing more, and finishes its work."""
    PAUSED = "paused"
    """An operator paused it or its service: it gets nothing new, and what it is owed is kept."""
    DETACHED = "detached"
    """An operator took it off the bus: it is owed nothing until it is attached again."""


class ConsumerState(StrEnum):
    """The states of a consumer role in the memory of the back.

    A detached role is absent: the configuration lets nobody register for it.
    """

    ABSENT = "absent"
    """No recipient serves it: its cursor lags."""
    READING = "reading"
    """A lane reads the log for it, together with other roles that stand at the same position."""
    SLOW = "slow"
    """It kept others waiting for too long: a lane reads for it alone until that reaches the head of the log."""
    TRIPPED = "tripped"
    """Its circuit breaker is open: no lane reads for it, and a row goes to its recipient now and then."""
    PAUSED = "paused"
    """An operator paused it: its recipient gets nothing new until it is resumed, and goes on with what it has."""
    LEAVING = "leaving"
    """Its recipient gets nothing more, and may finish its work."""


class ReplyState(StrEnum):
    """The states of an immediate reply."""

    ASKED = "asked"
    """Its emitter waits for it."""
    HELD = "held"
    """It is durable; the recipient that gave it keeps the envelope open until that is sealed or cancelled."""
    GIVEN = "given"
    """It is durable, and nobody keeps the envelope open for it any more."""
    FAILED = "failed"
    """No reply came, and the recipient was asked to roll back; its emitter may ask again."""


class TrackingState(StrEnum):
    """The states of a person's work on a failure, by the names of xbus.broker 0.2.0."""

    UNPROCESSED = "unprocessed"
    """Nobody has looked at it yet."""
    PROCESSING = "processing"
    ON_HOLD = "on_hold"
    CORRECTED = "corrected"
    WON_T_FIX = "won_t_fix"


class BotRunState(StrEnum):
    """The states of a run of a bot."""

    DUE = "due"
    """It waits for a runner, from the moment in its row on."""
    RUNNING = "running"
    """A runner has it, and renews its lease meanwhile."""
    DONE = "done"
    """It ended well, and what it put is in the log."""
    FAILED = "failed"
    """Its last attempt failed; nothing of it is in the log."""


class BotState(StrEnum):
    """The states of a bot, as operators see it; they follow from its pause, its failures and its runs."""

    PAUSED = "paused"
    """An operator paused it: nothing of it begins."""
    SLOWED = "slowed"
    """Too many attempts failed one after another: it is tried once in a while, until one goes well."""
    RUNNING = "running"
    """A run of it is under way."""
    WAITING = "waiting"
    """It runs at its next slot, with the next batch, or as soon as a runner is free."""
    MANUAL = "manual"
    """It only runs when a person fires it."""


class RangeState(StrEnum):
    """The states of a range of a reader."""

    FREE = "free"
    """No program reads it. A batch may be out of it still, which comes again as it was."""
    LEASED = "leased"
    """A program has it, and nothing of it is out."""
    OUT = "out"
    """A program has it, and a batch of it."""
    PARKED = "parked"
    """It is a batch that a subscriber did not take, and waits for a person."""
    COMPLETED = "completed"
    """It was split or merged, and other ranges go on at its place; or its parked batch was ended."""


class IllegalMove(Exception):
    """A move that no table of a life cycle permits: a fault of the program, not of its user."""


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
    # Its envelope is about to be removed, or a part of it is missing.
    AttemptState.READY: frozenset({AttemptState.ABANDONED}),
    AttemptState.FAILED: frozenset(),
    AttemptState.ABANDONED: frozenset(),
}

ITEM_MOVES: Mapping[ItemState, frozenset[ItemState]] = {
    ItemState.PARKED: frozenset({ItemState.RESUMED, ItemState.DROPPED}),
    ItemState.RESUMED: frozenset(),
    ItemState.DROPPED: frozenset(),
}

CONSUMER_MOVES: Mapping[ConsumerState, frozenset[ConsumerState]] = {
    # A breaker that tripped stays open while nobody is there: the next recipient is probed first.
    ConsumerState.ABSENT: frozenset({ConsumerState.READING, ConsumerState.TRIPPED}),
    ConsumerState.READING: frozenset(
        {ConsumerState.SLOW, ConsumerState.TRIPPED, ConsumerState.PAUSED, ConsumerState.LEAVING}
    ),
    ConsumerState.SLOW: frozenset(
        {ConsumerState.READING, ConsumerState.TRIPPED, ConsumerState.PAUSED, ConsumerState.LEAVING}
    ),
    ConsumerState.TRIPPED: frozenset({ConsumerState.READING, ConsumerState.PAUSED, ConsumerState.LEAVING}),
    # Its breaker may have tripped, or closed, by what was under way.
    ConsumerState.PAUSED: frozenset({ConsumerState.READING, ConsumerState.TRIPPED, ConsumerState.LEAVING}),
    ConsumerState.LEAVING: frozenset({ConsumerState.ABSENT}),
}
"""``ConsumerRole`` of the back has a method for each move."""

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

BOT_RUN_MOVES: Mapping[BotRunState, frozenset[BotRunState]] = {
    BotRunState.DUE: frozenset({BotRunState.RUNNING}),
    BotRunState.RUNNING: frozenset({BotRunState.DUE, BotRunState.DONE, BotRunState.FAILED}),
    BotRunState.DONE: frozenset(),
    BotRunState.FAILED: frozenset({BotRunState.DUE}),
}
"""A run whose attempt failed, or whose runner is lost, is due again. One that has failed a person may fire again."""

RANGE_MOVES: Mapping[RangeState, frozenset[RangeState]] = {
    # Who takes a range of which a batch is out gets that batch first.
    RangeState.FREE: frozenset(RangeState),
    # Another program may take it, and a person may move, split or merge it at any moment.
    RangeState.LEASED: frozenset(RangeState),
    RangeState.OUT: frozenset(RangeState),
    RangeState.PARKED: frozenset({RangeState.FREE, RangeState.COMPLETED}),
    RangeState.COMPLETED: frozenset(),
}
"""Only what is completed stays so. The counter of a range decides whose move it is."""


class Tone(StrEnum):
    """The tone in which people are shown a state: bad asks for a person, busy goes on by itself, good is well."""

    BAD = "bad"
    BUSY = "busy"
    GOOD = "good"


RISING_TONES = ("", Tone.BUSY, Tone.BAD)
"""The tones of things in a drawing, from calm to bad: what is well has none."""

_WORDS_OF_TONE = {
    Tone.BAD: "abandoned disabled expired failed parked silent slowed stopped troubled unprocessed unreachable",
    Tone.BUSY: (
        "absent building cancelled delivering detached due free held new open owed partial paused pending retry "
        "running waiting"
    ),
    Tone.GOOD: "cleared corrected done healthy leased present processed ready received sealed",
}

TONE_OF: Mapping[str, Tone] = {word: tone for tone, words in _WORDS_OF_TONE.items() for word in words.split()}
"""The tones of states, also of those that only commands and pages name."""

State = TypeVar("State", bound=StrEnum)


def check_move(moves: Mapping[State, frozenset[State]], old: State, new: State) -> None:
    """Let a legal move pass.

    Raises:
        IllegalMove: ``new`` does not follow ``old`` in ``moves``.
    """
    if new not in moves[old]:
        raise IllegalMove(f"{type(old).__name__} can't go from {old} to {new}")


def predecessors(moves: Mapping[State, frozenset[State]], new: State) -> frozenset[State]:
    """Collect the states from which ``new`` may be reached: a compare-and-set update compares with them."""
    return frozenset(old for old, following in moves.items() if new in following)
