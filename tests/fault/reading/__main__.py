"""``python -m tests.fault.reading``: one line of JSON on standard output; exit code 1 where a promise was not kept.

CYCLES, SEED and DB are read from the environment.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.fault.reading.trial import ReaderTrial, set_up
from tests.support import postgres
from tests.support.daemon import Daemon
from xbus.broker.journal.database import schema

MOST_TOLD = 20


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """Make a database with a schema for a trial; its address."""
    if kind == "sqlite":
        url = f"sqlite:///{folder / 'xbus.db'}"
        schema.upgrade(url)
        yield url
        return
    with postgres.cluster() as private, closing(postgres.Server(private.url)) as server:
        yield server.create()


def main() -> int:
    """Play a long trial, tell its figures and give the exit code."""
    strikes, seed = int(os.environ.get("CYCLES") or 500), int(os.environ.get("SEED") or 0)
    kind = os.environ.get("DB") or "sqlite"
    if kind not in ("sqlite", "postgresql"):
        sys.stderr.write(f"DB={kind}: choose sqlite or postgresql\n")
        return 2
    with tempfile.TemporaryDirectory() as name, database(kind, Path(name)) as url:
        set_up(url)
        broker = Daemon(Path(name) / "daemon", url)
        broker.start()
        try:
            trial = ReaderTrial(broker, Path(name), seed)
            ruling = asyncio.run(trial.run(strikes))
        finally:
            broker.kill()
    told = {
        "database": kind,
        "seed": seed,
        **dict(sorted(trial.struck.items())),
        "sent": sum(map(len, trial.sent.values())),
        "batches": ruling.batches,
        "repeats": ruling.repeats,
        "late_refused": ruling.late,
        "violations": len(ruling.violations),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stderr.write("".join(f"{each}\n" for each in ruling.violations[:MOST_TOLD]))
    return 1 if ruling.violations else 0


if __name__ == "__main__":
    sys.exit(main())
