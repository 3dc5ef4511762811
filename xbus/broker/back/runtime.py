"""The surroundings of one run of the back: its clock, its tasks, and its randomness."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from xbus.clock import Clock


@dataclass(frozen=True, slots=True)
class Runtime:
    """Handed in, so that a simulation can repeat a run.

    Args:
        clock: for what is stored, and for graces.
        tasks: where all that goes on runs; what dies there ends the broker.
        random: for delays that are not all alike; one with a seed makes a run that can be repeated.
    """

    clock: Clock
    tasks: asyncio.TaskGroup
    random: Random = field(default_factory=Random)
