"""The surroundings of one run of the back: its clock, its tasks, its randomness, and its intervals."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from xbus.clock import Clock


@dataclass(frozen=True, slots=True)
class BackIntervals:
    """Seconds that the back waits where nothing calls for it sooner. Smaller notices sooner and costs wake-ups.

    Args:
        gather: before a new lane starts: recipients that come up together then share it, and one that is slow lets
            the others go first.
        retry: after a write that the database did not take.
        leases: between two looks at the leases of bulk workers, at the most.
        changes: until a decision is looked at again that had to wait.
        idle: between two looks at the cursors of roles that are owed nothing.
        rows: between two looks for delivery rows that are due.
    """

    gather: float = 0.2
    retry: float = 1.0
    leases: float = 1.0
    changes: float = 1.0
    idle: float = 1.0
    rows: float = 5.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """Handed in, so that a simulation can repeat a run.

    Args:
        clock: for what is stored, and for graces.
        tasks: where all that goes on runs; what dies there ends the broker.
        random: for delays that are not all alike; one with a seed makes a run that can be repeated.
        intervals: how often it looks; tests have no patience.
        may_emit: false while the journal is full, so that nodes that emit wait.
    """

    clock: Clock
    tasks: asyncio.TaskGroup
    random: Random = field(default_factory=Random)
    intervals: BackIntervals = BackIntervals()
    may_emit: Callable[[], bool] = lambda: True
