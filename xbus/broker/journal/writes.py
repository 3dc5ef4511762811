"""What may be written to the journal, as values; ``statements`` says how each is carried out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from xbus.broker.journal.cursor import Cursor
from xbus.states import DeliveryState, PresenceState, ReplyState

Indices: TypeAlias = list[list[int]]
"""For each item the indices of the emitted items that it was made of."""


@dataclass(frozen=True, slots=True)
class StartEnvelope:
    """An envelope begins; ``ordering_key`` and ``idempotency_key`` as in ``model.envelope``."""

    envelope_id: UUID
    emitter_id: int
    at: datetime
    ordering_key: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class StartEvent:
    event_id: UUID
    envelope_id: UUID
    number: int
    event_type_id: int
    graph_id: int
    estimate: int


@dataclass(frozen=True, slots=True)
class Append:
    """Items of an event, ``data`` as in ``model.segment``; appends of one group that touch become one segment."""

    envelope_id: UUID
    event_id: UUID
    first_index: int
    items: int
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class EndEvent:
    envelope_id: UUID
    event_id: UUID
    items: int


@dataclass(frozen=True, slots=True)
class Seal:
    """The envelope is received: answered with its ``Receipt``.

    Args:
        events: how many events the journal must hold of it.
        items: how many items the journal must hold of it.
        content_hash: as in ``model.envelope``, where it has an idempotency key.
    """

    envelope_id: UUID
    events: int
    items: int
    at: datetime
    content_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """An event of an envelope that comes again.

    Args:
        event_id: its new id.
        origin_id: the event whose segments hold its items, which is never itself a repeat.
        number: as in the envelope that is repeated, and so are the type, the estimate and the number of items.
        graph_id: the way that it takes now.
    """

    event_id: UUID
    origin_id: UUID
    number: int
    event_type_id: int
    graph_id: int
    estimate: int
    items: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A received envelope comes again, as a new one that is received at once: answered with its ``Receipt``.

    Args:
        envelope_id: of the new envelope.
        origin_id: of the one that comes again.
        events: all of its events.
        parked_for: the roles that it comes again for. Their deliveries of it must be parked, and are settled by this.
            None where it is owed to everybody again.
    """

    envelope_id: UUID
    origin_id: UUID
    events: Sequence[RepeatedEvent]
    parked_for: Sequence[int] | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Cancel:
    envelope_id: UUID
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class AskReply:
    """The emitter of an event waits for its immediate reply, or does so again: see ``model.reply``."""

    event_id: UUID
    envelope_id: UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class CallOffAsks:
    """Nobody waits for any reply: the front that was asked has gone down, and emitters ask the next one anew.

    Args:
        code: why there are none.
        cause: the same in a sentence.
    """

    code: str
    cause: str


@dataclass(frozen=True, slots=True)
class MoveReply:
    """What becomes of an immediate reply.

    Args:
        role_id: who gave it, at ``HELD``.
        data: the reply in msgpack, at ``HELD``.
        code: why there is none, at ``FAILED``.
        cause: the same in a sentence.
    """

    event_id: UUID
    envelope_id: UUID
    state: ReplyState
    role_id: int | None = None
    data: bytes | None = None
    code: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class StartSession:
    token_hash: bytes
    emitter_id: int | None
    role_id: int | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RenewSessions:
    """When sessions expire from now on, by token hash."""

    expiries: Sequence[tuple[bytes, datetime]]


@dataclass(frozen=True, slots=True)
class EndSession:
    token_hash: bytes


@dataclass(frozen=True, slots=True)
class StorePassword:
    """A better hash of a password that was just given, unless another was set since.

    Args:
        verified_hash: what the password was checked against; it is replaced while it is still what is stored.
        better_hash: what is stored of it from then on.
    """

    emitter_id: int | None
    role_id: int | None
    verified_hash: str
    better_hash: str


@dataclass(frozen=True, slots=True)
class Register:
    """A recipient serves a role from now on; ``metadata`` and ``features`` as in ``model.registration``."""

    role_id: int
    token_hash: bytes
    uri: str
    at: datetime
    metadata: Mapping[str, Any]
    features: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Introduce:
    """What a recipient says of itself now, where it is still the one that is registered.

    Args:
        metadata: as in ``model.registration``; None before it has been asked, as after a restart of the broker.
        features: the same.
    """

    role_id: int
    token_hash: bytes
    uri: str
    metadata: Mapping[str, Any] | None
    features: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Unregister:
    """A registration ends; a newer one of the same role stays."""

    role_id: int
    token_hash: bytes
    uri: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """An envelope that goes its own way for a role: see ``model.delivery``.

    Args:
        role_id: the consumer role.
        position: the envelope's.
        attempts: how often it was handed over so far.
        service: the worker service that is waited for, if any.
        ordering_key: the envelope's, "" for none, where the role wants order; None where it does not.
        due_at: when the next attempt may begin; None for at once.
    """

    role_id: int
    envelope_id: UUID
    position: int
    state: DeliveryState
    attempts: int
    code: str
    cause: str
    service: str | None = None
    ordering_key: str | None = None
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class IsolatedItem:
    """An item that a role does without, as a recipient refused it: see ``model.parked_item``."""

    event_id: UUID
    index: int
    code: str
    cause: str


@dataclass(frozen=True, slots=True)
class DeliveryMove:
    """A delivery's new row.

    Args:
        old: the state that it must have before; None where it has no row yet.
        isolated: items that are parked alone, that the rest may be delivered.
    """

    old: DeliveryState | None
    new: Delivery
    isolated: Sequence[IsolatedItem] = ()


@dataclass(frozen=True, slots=True)
class PresenceRow:
    """What operators see of a role's recipient: see ``model.presence``.

    Args:
        work: for each envelope that is being brought to it a map, to which its position is added; None for none.
    """

    role_id: int
    state: PresenceState
    since: datetime
    seen_at: datetime | None
    work: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class NotePresence:
    """What is known of recipients now, where it has changed."""

    rows: Sequence[PresenceRow]
    at: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call to a recipient: see ``model.failure``.

    Args:
        indices: the items that the recipient named.
        node: where in the event's graph it happened; None at the end of an envelope.
    """

    envelope_id: UUID
    event_id: UUID | None
    role_id: int | None
    verb: str
    code: str
    message: str
    indices: list[int] | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """A step in carrying out what an administrator decided about envelopes that are owed: see ``model.decision``.

    Args:
        decision_id: which one.
        position: all envelopes up to here are dealt with.
        is_done: whether those were all.
        regraphed: events that take another version of their type's graph, with its id.
        let_go: what roles do without: role and envelope, what it is called in the history, and the reason.
    """

    decision_id: int
    position: int
    is_done: bool
    regraphed: Sequence[tuple[UUID, int]] = ()
    let_go: Sequence[tuple[int, UUID, str, str]] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """What the back got done, all in one transaction: cursors move only together with the rows they pass."""

    at: datetime
    cursors: Sequence[Cursor] = ()
    deliveries: Sequence[DeliveryMove] = ()
    failures: Sequence[Failure] = ()
    decided: Sequence[Decided] = ()


@dataclass(frozen=True, slots=True)
class FollowOrder:
    """The deliveries that have rows are as the roles want them now: of ordered roles each has its ordering key, and for
    others none is held.

    Args:
        ordered: the consumer roles that want order; all others don't.
    """

    ordered: Sequence[int]


Write: TypeAlias = (
    StartEnvelope
    | StartEvent
    | Append
    | EndEvent
    | Repeat
    | Seal
    | Cancel
    | CallOffAsks
    | AskReply
    | MoveReply
    | StartSession
    | RenewSessions
    | EndSession
    | StorePassword
    | Register
    | Introduce
    | Unregister
    | Progress
    | NotePresence
    | FollowOrder
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the emitter of a received envelope is given.

    Args:
        position: its place in the log, from 1.
        data_bytes: of its segments.
        hash: SHA-256, see ``model.envelope``.
    """

    envelope_id: UUID
    position: int
    events: int
    items: int
    data_bytes: int
    hash: bytes


def write_size(write: Write) -> int:
    """About how many bytes of memory a write holds on to until it is committed."""
    match write:
        case Append():
            return 200 + write.size
        case Repeat():
            return 200 + 400 * len(write.events)
    return 200
