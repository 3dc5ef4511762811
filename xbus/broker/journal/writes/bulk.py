"""Writes about the attempts of bulk workers, and about their outputs."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from xbus.broker.journal.writes.write import Write
from xbus.states import AttemptState

Place: TypeAlias = tuple[int, int]
"""Part and number of a segment of an output."""


@dataclass(frozen=True, slots=True)
class OutputPage:
    """Segments of an output that follow each other, without their data; those without items are left out.

    Args:
        after: the place before the first one.
        last: the place of the last one.
        segments: how many they are.
        items: how many items they hold together.
        data_bytes: how many bytes their data take together.
    """

    attempt_id: UUID
    after: Place
    last: Place
    segments: int
    items: int
    data_bytes: int

    @property
    def size(self) -> int:
        """The bytes that the database copies for it, by which it is bounded what is on its way."""
        return self.data_bytes


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


@dataclass(frozen=True, slots=True)
class AppendOutput(Write[None]):
    """Items of an event that lie in an output already: the database copies its segments, each as it is.

    It fails where one of the segments is not there any more.

    Args:
        first_index: of the first item of the page, in the event.
    """

    envelope_id: UUID
    event_id: UUID
    first_index: int
    page: OutputPage
