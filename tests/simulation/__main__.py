"""Plays many schedules: ``make simulate SCHEDULES=2000 SEED=1``.

Prints one JSON line; the exit code is 1 where a promise is broken.
"""

import json
import os
import sys
import time

from tests.simulation.schedules import run_schedule


def main() -> int:
    # make hands on what was not said as an empty text.
    schedules, seed = int(os.environ.get("SCHEDULES") or 1000), int(os.environ.get("SEED") or 1)
    began = time.perf_counter()
    broken: list[int] = []
    virtual_seconds, turns = 0.0, 0
    for number in range(seed, seed + schedules):
        try:
            outcome = run_schedule(number)
        except Exception as error:
            broken.append(number)
            sys.stderr.write(f"seed {number}: {error!r}\n")
        else:
            virtual_seconds += outcome.seconds
            turns += outcome.turns
    seconds = time.perf_counter() - began
    told = {
        "schedules": schedules,
        "seed": seed,
        "broken": broken,
        "virtual_seconds": round(virtual_seconds),
        "turns": turns,
        "seconds": round(seconds, 1),
        "schedules_per_second": round(schedules / seconds, 1),
    }
    sys.stdout.write(f"{json.dumps(told)}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
