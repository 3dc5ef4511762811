"""``python -m tests.fault.failover``: one line of JSON on standard output; exit code 1 where a promise was not kept.

CYCLES, SEED, FAULTS, SYNCHRONOUS and FOLDER are read from the environment. The folder keeps a line for each strike in
``failover.jsonl``: a run goes on behind those that are there.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.fault.failover.machines import missing, running
from tests.fault.failover.trial import FailoverTrial, Struck

TALLY = "failover.jsonl"


def chosen(seed: int, kinds: tuple[str, ...], count: int) -> list[str]:
    """The strikes of a seed: each kind once before any of them comes again."""
    chance = random.Random(seed)
    rounds = -(-count // len(kinds))
    return [kind for _ in range(rounds) for kind in chance.sample(kinds, len(kinds))][:count]


def summed(struck: list[Struck]) -> dict[str, object]:
    """The figures of all strikes of a tally."""
    broken = ("lost", "doubled", "reordered", "gaps", "faults")
    slowest = {kind: max(each.writes for each in struck if each.strike == kind) for kind in {s.strike for s in struck}}
    sums = {name: sum(getattr(each, name) for each in struck) for name in broken}
    return {"strikes": len(struck), "slowest": dict(sorted(slowest.items())), **sums}


def main() -> int:
    """Play the strikes that the tally lacks, tell its figures and give the exit code."""
    told = os.environ
    strikes, seed = int(told.get("CYCLES") or 5), int(told.get("SEED") or 7)
    is_synchronous = (told.get("SYNCHRONOUS") or "yes") == "yes"
    kinds = tuple(
        (told.get("FAULTS") or ("kill,freeze,partition,both,standby" if is_synchronous else "power,lag")).split(",")
    )
    if lacking := missing():
        sys.stderr.write(f"{lacking}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="xbus-failover-", dir="/dev/shm") as name:
        work = Path(name)
        work.chmod(0o755)
        folder = Path(told.get("FOLDER") or name)
        folder.mkdir(parents=True, exist_ok=True)
        tally = folder / TALLY
        struck = [Struck(**json.loads(line)) for line in tally.read_text().splitlines()] if tally.exists() else []

        def tell(result: Struck) -> None:
            struck.append(result)
            with tally.open("a") as file:
                file.write(json.dumps(result._asdict()) + "\n")
            sys.stderr.write(f"{result}\n")

        left = chosen(seed, kinds, strikes)[len(struck) :]
        if left:
            with running(work / "machines", is_synchronous) as machines:
                chance = random.Random(f"{seed}/{len(struck)}")
                trial = FailoverTrial(machines, work, chance, loses=not is_synchronous)
                asyncio.run(trial.run(left, tell))
    figures = summed(struck)
    sys.stdout.write(json.dumps({"seed": seed, "synchronous": is_synchronous, **figures}) + "\n")
    return int(any(figures[each] for each in ("lost", "doubled", "reordered", "gaps", "faults")))


if __name__ == "__main__":
    sys.exit(main())
