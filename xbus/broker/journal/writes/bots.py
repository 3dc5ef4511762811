"""The writes about runs of bots, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from xbus.broker.journal.writes.write import Write


@dataclass(frozen=True, slots=True)
class FireSlots(Write[bool]):
    """Make a run of each slot that has none, and note up to where slots are decided. Answers whether that took place.

    Args:
        until: nothing happens where another broker has decided further already, unless its clock was ahead, or where
            the bot is slowed down.
        is_each: whether each slot counts. Otherwise a bot that is tried again after a pause gets one run at the most.
    """

    bot_id: int
    slots: Sequence[datetime]
    until: datetime
    now: datetime
    is_each: bool = False


def run_key(run_id: int, slot: datetime | None, batch: str | None) -> str:
    """Make the key under which a run writes, for the emitter of its bot alone.

    It has no name in it, as a bot may be renamed while a run is tried again.
    """
    if batch is not None:
        return batch
    return f"run {run_id}" if slot is None else f"slot {slot.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


class ClaimedRun(NamedTuple):
    """A run that a runner has got.

    Args:
        attempt: from 1 on.
        repeated: whether an attempt began before, counted or not.
        slot: its moment; None for one that a person fired, or that is for a batch.
        due_at: since when it was due.
        batch: its range and its bounds; None for others.
    """

    id: int
    bot_id: int
    attempt: int
    repeated: bool
    slot: datetime | None
    due_at: datetime
    batch: str | None


@dataclass(frozen=True, slots=True)
class ClaimRun(Write[ClaimedRun | None]):
    """Give a program of a runner the run that was due first; answers None where none is.

    Args:
        instances: the bots that may begin a run now, by id, and how many of its runs may be under way.
        batches: the runs for batches whose items are at hand.
        program: of the runner.
        ticket_hash: of the word by which the run may log in at the front.
        lease_until: when it is lost.
    """

    instances: dict[int, int]
    batches: frozenset[int]
    role_id: int
    program: UUID
    ticket_hash: bytes
    lease_until: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class RenewRuns(Write[Sequence[int]]):
    """Extend the leases of runs that a program knows of; answers which of these it has.

    A run of which it never heard, as the answer to its claim was lost, is given to another program in time.
    """

    role_id: int
    program: UUID
    runs: Sequence[int]
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The failure of an attempt of a run.

    Args:
        code: a stable name.
        error: in words.
    """

    code: str
    error: str


@dataclass(frozen=True, slots=True)
class EndRun(Write[bool]):
    """End an attempt of a run; answers whether it was that program's.

    Args:
        role_id: of the runner that has it; another one can't end it.
        ticket_hash: of the attempt. Its number may come again, as attempts at a slowed bot are not counted.
        failure: None where all went well.
        log: the end of what it printed.
    """

    run_id: int
    role_id: int
    program: UUID
    ticket_hash: bytes
    failure: RunFailure | None
    log: str
    now: datetime


@dataclass(frozen=True, slots=True)
class LoseRuns(Write[int]):
    """Take the runs from programs whose leases are over; answers how many these were."""

    now: datetime
