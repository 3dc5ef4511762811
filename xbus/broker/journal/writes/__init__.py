"""The writes to the journal, as values; ``commit.statements`` carries each out.

A write says what to note and what its answer is. It has no SQL and no behaviour beyond its size, so front and back make
writes without knowing the database. Front, back and commands import it, and so does every package of the journal.

Face: the names below, ``bots``, ``bulk``, ``cursor`` and ``fingerprint``.
"""

import hashlib
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import NotRequired, TypeAlias, TypedDict
from uuid import UUID

from xbus.broker.journal.writes.bots import EndRun
from xbus.broker.journal.writes.cursor import Cursor
from xbus.broker.journal.writes.emission import Append as Append
from xbus.broker.journal.writes.emission import Cancel as Cancel
from xbus.broker.journal.writes.emission import EndEvent as EndEvent
from xbus.broker.journal.writes.emission import GroupType as GroupType
from xbus.broker.journal.writes.emission import Indices as Indices
from xbus.broker.journal.writes.emission import PutEnvelope as PutEnvelope
from xbus.broker.journal.writes.emission import PutEvent as PutEvent
from xbus.broker.journal.writes.emission import PutGroup as PutGroup
from xbus.broker.journal.writes.emission import Repeat as Repeat
from xbus.broker.journal.writes.emission import RepeatedEvent as RepeatedEvent
from xbus.broker.journal.writes.emission import Seal as Seal
from xbus.broker.journal.writes.emission import Sealed as Sealed
from xbus.broker.journal.writes.emission import SealedEnvelope as SealedEnvelope
from xbus.broker.journal.writes.emission import SealedGroup as SealedGroup
from xbus.broker.journal.writes.emission import SealReceipt as SealReceipt
from xbus.broker.journal.writes.emission import StartEnvelope as StartEnvelope
from xbus.broker.journal.writes.emission import StartEvent as StartEvent
from xbus.broker.journal.writes.emission import StoredObject as StoredObject
from xbus.broker.journal.writes.write import EarlierWrite as EarlierWrite
from xbus.broker.journal.writes.write import Write as Write
from xbus.broker.journal.writes.write import WriteAnswer as WriteAnswer
from xbus.states import DeliveryState, PresenceState, ReplyState

# -- limits ------------------------------------------------------------------------------------------------------------
# Limits of emitters, as values: how fast each may send, and how much it may keep open.


@dataclass(frozen=True, slots=True)
class SendingLimits:
    """The limits of an emitter or of a profile, with the names and the order of the table's columns. None for no limit.

    Args:
        items_per_second: items that the front takes.
        bytes_per_second: bytes of items that the front takes.
        open_envelopes: envelopes that are begun and not ended.
        envelope_events: events of an envelope; the front's ``max_envelope_events`` holds, too.
        calls_in_flight: calls that wait for their answers.
        bytes_in_flight: the bytes of these calls.
    """

    items_per_second: int | None = None
    bytes_per_second: int | None = None
    open_envelopes: int | None = None
    envelope_events: int | None = None
    calls_in_flight: int | None = None
    bytes_in_flight: int | None = None

    @classmethod
    def first_of(cls, own: "SendingLimits | None", profile: "SendingLimits | None") -> "SendingLimits | None":
        """Give the limits of an emitter: its own come before those of its profile."""
        if own is None or profile is None:
            return own or profile
        return replace(profile, **{name: value for name, value in asdict(own).items() if value is not None})


LIMIT_NAMES = tuple(field.name for field in fields(SendingLimits))

NO_LIMITS = SendingLimits()


# -- keeping -----------------------------------------------------------------------------------------------------------
# The limits of what the bus keeps of an event type, as values.


@dataclass(frozen=True, slots=True)
class Keeping:
    """The limits of what the bus keeps of a type, with the names of the table's columns. None for no such limit.

    An event may go as soon as it is beyond one of them.

    Args:
        keep: seconds after the seal; infinite for ever.
        keep_bytes: so many bytes of the newest events stay.
        keep_last_per_key: so many of the newest events of each partition key stay.
        archive_after: seconds after which its events go into the archive, from which nothing removes them.
    """

    keep: float | None = None
    keep_bytes: int | None = None
    keep_last_per_key: int | None = None
    archive_after: float | None = None

    def seconds(self, otherwise: float) -> float:
        """Give the seconds after which the age alone lets an event go; infinite for never.

        Args:
            otherwise: those of a type without any limit of its own.
        """
        if self.keep is not None:
            return self.keep
        return otherwise if self == BUS_WIDE else math.inf


BUS_WIDE = Keeping()
"""A type without limits of its own: the configuration file decides."""

Keepings: TypeAlias = Mapping[int, Keeping]
"""The limits of the types that have some, by the id of the type."""


# -- contents ----------------------------------------------------------------------------------------------------------
# Writes about the log's table of contents.


@dataclass(frozen=True, slots=True)
class ListedGraph:
    """A graph whose events lie in a block of the log: see ``model.contents``.

    Args:
        positions: a bitmap of those of the block whose envelopes hold such events.
    """

    graph_id: int
    block: int
    positions: bytes
    events: int
    items: int
    oldest_at: datetime
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class ListBlock(Write[None]):
    """The table of contents reaches on to the end of another block, all or nothing.

    Args:
        after: where it ends until now.
        until: where it ends then.
        graphs: all whose events lie in between.
    """

    after: int
    until: int
    graphs: Sequence[ListedGraph]


# -- replies -----------------------------------------------------------------------------------------------------------
# Immediate replies: asked for, given, called off.


@dataclass(frozen=True, slots=True)
class AskReply(Write[None]):
    """The emitter of an event waits for its immediate reply, or does so again: see ``model.reply``."""

    event_id: UUID
    envelope_id: UUID
    until: datetime


@dataclass(frozen=True, slots=True)
class CallOffAsks(Write[None]):
    """Cancel all requests for replies: the front that made them has gone down, and emitters ask the next one anew.

    Args:
        code: the code of the lack of replies.
        cause: the same in a sentence.
    """

    code: str
    cause: str


@dataclass(frozen=True, slots=True)
class MoveReply(Write[None]):
    """Move an immediate reply to another state.

    Args:
        role_id: the role that gave it, at ``HELD``.
        data: the reply in msgpack, at ``HELD``.
        code: the code of its failure, at ``FAILED``.
        cause: the same in a sentence.
    """

    event_id: UUID
    envelope_id: UUID
    state: ReplyState
    role_id: int | None = None
    data: bytes | None = None
    code: str | None = None
    cause: str | None = None


# -- pauses ------------------------------------------------------------------------------------------------------------
# Pauses, as values: roles, services, event types and emitters for which nothing new begins.

PAUSED = "paused"
"""The code of what waits for the end of a pause, and of what is refused until then."""

FOR_EVER = datetime.max.replace(tzinfo=UTC)


class PauseKind(StrEnum):
    """The kinds of what can be paused."""

    ROLE = "role"
    """One recipient gets nothing new."""
    SERVICE = "service"
    """No recipient of its roles gets anything new."""
    TYPE = "type"
    """No event of the type is begun."""
    EMITTER = "emitter"
    """It begins no envelope."""
    BOT = "bot"
    """None of its runs begins, and its slots count as missed."""

    @property
    def told(self) -> str:
        """The kind in a sentence."""
        return "event type" if self is PauseKind.TYPE else self.value


@dataclass(frozen=True, slots=True)
class PauseEntry:
    """A pause.

    Args:
        subject_id: the id of the paused row, in the table of its kind.
        name: its login or name.
        paused_by: the person who paused it.
        until: when it ends by itself; None for when somebody resumes it.
    """

    kind: PauseKind
    subject_id: int
    name: str
    reason: str
    paused_by: str
    since: datetime
    until: datetime | None

    @property
    def told(self) -> str:
        """The pause in a sentence, with its reason and its end."""
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%SZ}"
        return f'{self.kind.told} "{self.name}" is paused{until} by {self.paused_by}: {self.reason}'

    @property
    def resume_command(self) -> str:
        """The command that ends the pause."""
        return f"xbus resume {self.kind.value} {shlex.quote(self.name)} --reason …"

    def is_over(self, now: datetime) -> bool:
        """Check whether it has ended by itself."""
        return self.until is not None and self.until <= now


Pauses: TypeAlias = Mapping[tuple[PauseKind, int], PauseEntry]
"""Pauses by kind and id."""


def longest(pauses: Iterable[PauseEntry | None]) -> PauseEntry | None:
    """Choose the pause that ends last; None where there is none."""
    found = [pause for pause in pauses if pause is not None]
    return max(found, key=lambda pause: pause.until or FOR_EVER, default=None)


def pause_of_role(pauses: Pauses, role_id: int, service_id: int, emits: int | None = None) -> PauseEntry | None:
    """Give the pause of a role or of its service, the one that ends last; None where neither is paused.

    Args:
        emits: the event type as which the bus emits what comes to the role: while that is paused, so is the role.
    """
    of_type = None if emits is None else pauses.get((PauseKind.TYPE, emits))
    return longest([pauses.get((PauseKind.ROLE, role_id)), pauses.get((PauseKind.SERVICE, service_id)), of_type])


@dataclass(frozen=True, slots=True)
class EndPauses(Write[None]):
    """End all pauses whose time is over at ``now``."""

    now: datetime


# -- presence ----------------------------------------------------------------------------------------------------------
# Writes about recipients, for operators to see.


class PresenceWork(TypedDict):
    """An envelope that is being brought to a recipient, or an output that it makes: see ``model.presence``.

    ``position`` is added when this is written down, ``event_id`` is told of outputs alone, and the rest of recipients
    that tell by heartbeats how far they are.
    """

    envelope_id: str
    event_id: NotRequired[str]
    verb: str
    since: str
    progress: NotRequired[int]
    done: NotRequired[int | None]
    of: NotRequired[int | None]
    position: NotRequired[int | None]


class PresenceInstance(TypedDict):
    """A program that is registered for a role that may have several.

    ``uri`` is the address at which the broker reaches it, ``state`` one of ``PresenceState``; moments are in ISO 8601.
    """

    uri: str
    state: str
    since: str
    seen_at: str
    work: Sequence[PresenceWork] | None


@dataclass(frozen=True, slots=True)
class PresenceRow:
    """The view of a role's recipient for operators: see ``model.presence``.

    Args:
        work: for each envelope that is being brought to it a map, to which its position is added; None for none.
        instances: the programs that are registered, with their work; None for a role that has place for one alone.
    """

    role_id: int
    state: PresenceState
    since: datetime
    seen_at: datetime | None
    work: Sequence[PresenceWork] | None = None
    instances: Sequence[PresenceInstance] | None = None


@dataclass(frozen=True, slots=True)
class NotePresence(Write[None]):
    """Write down what has changed about recipients."""

    rows: Sequence[PresenceRow]
    at: datetime


# -- progress ----------------------------------------------------------------------------------------------------------
# Writes about the back's progress and about deliveries.


@dataclass(frozen=True, slots=True)
class DeliveryRow:
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
    new: DeliveryRow
    isolated: Sequence[IsolatedItem] = ()


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
class ProgressUpdate(Write[None]):
    """Write the back's progress down in one transaction: cursors move only together with the rows they pass.

    Args:
        repeated: role and envelope of each repeat that a role has committed in its turn. It cures the failures of the
            envelope that it repeats.
    """

    at: datetime
    cursors: Sequence[Cursor] = ()
    deliveries: Sequence[DeliveryMove] = ()
    failures: Sequence[Failure] = ()
    decided: Sequence[Decided] = ()
    repeated: Sequence[tuple[int, UUID]] = ()


@dataclass(frozen=True, slots=True)
class FollowOrder(Write[None]):
    """Adapt the rows to what their roles want now.

    Each row of an ordered role gets its ordering key; no row of another role stays blocked.

    Args:
        ordered: the consumer roles that want order; all others don't.
    """

    ordered: Sequence[int]


# -- sessions ----------------------------------------------------------------------------------------------------------
# Writes about sessions and registrations.

SERVED = "served:"
"""The begin of the uri of a recipient that is called over the connection that it made."""


@dataclass(frozen=True, slots=True)
class StartSession(Write[bool]):
    """Begin a session, unless the login's password was changed meanwhile, or its run of a bot has ended.

    Answers whether it has begun.

    Args:
        verified_hash: what the password was checked against.
        started_at: the moment of the login; None where it does not matter.
        ticket_hash: of the ticket of a bot's run, with which the session ends; None for a session by a password.
    """

    token_hash: bytes
    emitter_id: int | None
    role_id: int | None
    expires_at: datetime
    verified_hash: str
    started_at: datetime | None = None
    ticket_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class RenewSessions(Write[None]):
    """Set new ends of sessions, by token hash."""

    expiries: Sequence[tuple[bytes, datetime]]


@dataclass(frozen=True, slots=True)
class NoteTokens(Write[None]):
    """Note that API tokens were used.

    Args:
        token_hashes: of the tokens, some of which may be revoked meanwhile.
        at: the moment.
    """

    token_hashes: Sequence[bytes]
    at: datetime


@dataclass(frozen=True, slots=True)
class EndSession(Write[None]):
    token_hash: bytes


@dataclass(frozen=True, slots=True)
class StorePassword(Write[None]):
    """A better hash of a password that was just given, unless another was set since.

    Args:
        verified_hash: what the password was checked against; it is replaced while it is still what is stored.
        better_hash: what is stored of it from then on.
    """

    emitter_id: int | None
    role_id: int | None
    verified_hash: str
    better_hash: str


def served_uri(channel: bytes) -> str:
    """Name a registration over the recipient's own connection, in the place of an address: nobody can connect there.

    Args:
        channel: of this registration. Only a part of its hash is kept, as who knows it might answer by it.
    """
    return SERVED + hashlib.sha256(channel).hexdigest()[:16]


def is_served(uri: str) -> bool:
    """Check whether a registration was made over the recipient's own connection."""
    return uri.startswith(SERVED)


@dataclass(frozen=True, slots=True)
class Register(Write[None]):
    """A recipient serves a role from now on; ``place``, ``metadata`` and ``features`` as in ``model.registration``.

    Args:
        beside: the sessions of the role's other programs, whose registrations stay; all others end.
    """

    role_id: int
    token_hash: bytes
    uri: str
    place: str
    at: datetime
    metadata: Mapping[str, object]
    features: Mapping[str, object]
    beside: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Introduce(Write[None]):
    """Store the new introduction of a recipient, if it is still the registered one.

    Args:
        metadata: as in ``model.registration``; None before it has been asked, as after a restart of the broker.
        features: the same.
    """

    role_id: int
    token_hash: bytes
    uri: str
    metadata: Mapping[str, object] | None
    features: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Unregister(Write[None]):
    """A registration ends; a newer one of the same role stays."""

    role_id: int
    token_hash: bytes
    uri: str


def write_size(write: object) -> int:
    """Estimate the bytes of memory that a write, or an errand, takes until its commit."""
    # Those first that come most often.
    match write:
        case PutGroup():
            return 200 + 600 * len(write.envelope_ids) + write.size
        case ProgressUpdate():
            return 200
        case Append():
            return 200 + write.size
        case PutEnvelope():
            return 200 + 400 * len(write.events) + write.size + write.header_bytes
        case StartEnvelope():
            return 200 + len(write.head.headers or b"")
        case StartEvent():
            return 200 + write.tags.size
        case Repeat():
            return 200 + sum([400 + event.tags.size for event in write.events])
        case ListBlock():
            return 200 + 300 * len(write.graphs)
        case EndRun():
            return 200 + len(write.log)
    return 200
