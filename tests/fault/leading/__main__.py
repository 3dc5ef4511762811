"""``python -m tests.fault.leading``: one line of JSON on standard output; exit code 1 where a promise was not kept.

CYCLES, SEED and FOLDER are read from the environment.
"""

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fault.leading.judge import summary
from tests.fault.leading.trial import MOST_TOLD, StandbyTrial
from tests.torture.brokers import ENDS_WITH
from tests.torture.database import database
from tests.torture.history import Log, lines

STRIKES_FILE = "strikes.jsonl"
INTERRUPTED = 130


def main() -> int:
    """Go on with a trial, tell its figures and give the exit code."""
    cycles, seed = int(os.environ.get("CYCLES") or 20), int(os.environ.get("SEED") or 7)
    folder = Path(os.environ.get("FOLDER") or tempfile.mkdtemp(prefix="xbus-standby-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / STRIKES_FILE
    log = Log(path)
    kinds = [*ENDS_WITH] * cycles
    random.Random(seed).shuffle(kinds)
    try:
        if left := kinds[sum(1 for _ in lines(path)) :]:
            asyncio.run(
                _strike(Path(tempfile.mkdtemp(prefix="session-", dir=folder)), log, left, f"{seed} {len(left)}")
            )
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted: FOLDER={folder} goes on\n")
        return INTERRUPTED
    strikes = [*lines(path)]
    violations = [each for strike in strikes for each in strike["violations"]]
    told = {"seed": seed, "violations": len(violations), "of": summary(strikes)}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stderr.write("".join(f"{each}\n" for each in violations[:MOST_TOLD]))
    if violations:
        sys.stderr.write(f"see {folder}\n")
        return 1
    if not os.environ.get("FOLDER"):
        shutil.rmtree(folder)
    return 0


async def _strike(folder: Path, log: Log, kinds: list[str], seed: str) -> None:
    async with database("postgresql", folder) as journal:
        await StandbyTrial(folder, journal, log, seed).run(kinds)


if __name__ == "__main__":
    sys.exit(main())
