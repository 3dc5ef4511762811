"""Writes about the back's progress and about deliveries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from xbus.broker.journal.writes.cursor import Cursor
from xbus.broker.journal.writes.write import Write
from xbus.states import DeliveryState


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
