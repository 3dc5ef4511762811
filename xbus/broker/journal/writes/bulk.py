"""Writes about the attempts of bulk workers."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from xbus.broker.journal.writes.write import Write
from xbus.states import AttemptState


@dataclass(frozen=True, slots=True)
class BeginAttempt(Write[bool]):
    """A bulk worker is about to be asked for the output of a node for an event.

    Answered True, or False where another attempt of the same output counts already: then nothing is written.
    """

    attempt_id: UUID
    event_id: UUID
    node_id: int
    role_id: int
    at: datetime
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class RenewAttempt(Write[bool]):
    """Its worker gave a sign of life; nothing happens to one that is not building any more."""

    attempt_id: UUID
    lease_until: datetime
    progress: float


@dataclass(frozen=True, slots=True)
class EndAttempt(Write[bool]):
    """End an attempt. The answer says whether it was building until now: otherwise nothing is written.

    Args:
        state: READY, FAILED or ABANDONED.
        code: the code of its failure; None if it is ready.
        cause: the same in a sentence.
        items: the number of its items; None unless ready.
        data_bytes: the bytes of its data, which are added to the journal's total; None unless ready.
        hash: over the hashes of its segments; None unless ready.
    """

    attempt_id: UUID
    state: AttemptState
    at: datetime
    code: str | None = None
    cause: str | None = None
    items: int | None = None
    data_bytes: int | None = None
    hash: bytes | None = None
