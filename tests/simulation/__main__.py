"""Plays many schedules, on all cores: ``make simulate SCHEDULES=2000 SEED=1``.

Prints one JSON line; the exit code is 1 where a promise is broken.
"""

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.simulation.schedules import run_schedule

AT_ONCE = 10
"""How many schedules a process takes at a time."""

ASKED_EVERY = 10
"""In one of so many schedules ``xbus why`` is asked meanwhile, which takes about five times as long."""


@dataclass(frozen=True)
class Played:
    """What came of a seed; ``broken`` is the promise that it broke, if any."""

    seed: int
    seconds: float = 0.0
    turns: int = 0
    broken: str | None = None


def play(seed: int) -> Played:
    """One schedule."""
    try:
        outcome = run_schedule(seed, ask_why=seed % ASKED_EVERY == 0)
    except Exception as error:
        return Played(seed, broken=repr(error))
    return Played(seed, outcome.seconds, outcome.turns)


def main() -> int:
    # make hands on what was not said as an empty text.
    schedules, seed = int(os.environ.get("SCHEDULES") or 1000), int(os.environ.get("SEED") or 1)
    began = time.perf_counter()
    played: list[Played] = []
    with ProcessPoolExecutor() as processes:
        for one in processes.map(play, range(seed, seed + schedules), chunksize=AT_ONCE):
            played.append(one)
            if one.broken is not None:
                sys.stderr.write(f"seed {one.seed}: {one.broken}\n")
    seconds = time.perf_counter() - began
    told = {
        "schedules": schedules,
        "seed": seed,
        "broken": [one.seed for one in played if one.broken is not None],
        "virtual_seconds": round(sum(one.seconds for one in played)),
        "turns": sum(one.turns for one in played),
        "seconds": round(seconds, 1),
        "schedules_per_second": round(schedules / seconds, 1),
    }
    sys.stdout.write(f"{json.dumps(told)}\n")
    return 1 if told["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
