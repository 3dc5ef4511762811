"""``python -m tests.fault.calling``: one line of JSON on standard output; exit code 1 where a promise was not kept.

CYCLES, SEED and DB are read from the environment.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.fault.calling.trial import HttpTrial
from tests.fault.reading.__main__ import MOST_TOLD, database


def main() -> int:
    """Play a long trial, tell its figures and give the exit code."""
    strikes, seed = int(os.environ.get("CYCLES") or 200), int(os.environ.get("SEED") or 0)
    kind = os.environ.get("DB") or "sqlite"
    if kind not in ("sqlite", "postgresql"):
        sys.stderr.write(f"DB={kind}: choose sqlite or postgresql\n")
        return 2
    with tempfile.TemporaryDirectory() as name, database(kind, Path(name)) as url:
        trial = HttpTrial(url, Path(name), seed)
        ruling = asyncio.run(trial.run(strikes))
    told = {"database": kind, "seed": seed, **dict(sorted(trial.struck.items())), "sent": len(trial.acknowledged)}
    told |= {"batches": ruling.batches, "repeats": ruling.repeats, "violations": len(ruling.violations)}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stderr.write("".join(f"{each}\n" for each in ruling.violations[:MOST_TOLD]))
    return 1 if ruling.violations else 0


if __name__ == "__main__":
    sys.exit(main())
