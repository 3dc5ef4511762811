"""Prints figures, and keeps them in a file for the report where one is named.

The file has one JSON object per line: ``about`` is the machine of a run, ``left_out`` a peer that it lacks, any other
line is a figure. Runs add to it; the newest figure of a scenario counts.
"""

import json
import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

GIB = 1 << 30


class Recorder:
    """Prints lines, and adds them to a file.

    Args:
        path: the file; None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @classmethod
    def of_environment(cls) -> "Recorder":
        """Keep figures in the file that the variable FIGURES names, if it does."""
        path = os.environ.get("FIGURES", "")
        return cls(Path(path) if path else None)

    def begin(self, run: str) -> None:
        """Keep what the machine is like; nobody wants to read that now."""
        self._keep(json.dumps({"about": run, **machine()}))

    def record(self, line: str) -> None:
        """Print a line of JSON, and keep it."""
        print(line, flush=True)
        self._keep(line)

    def leave_out(self, peer: str, cause: str) -> None:
        """Keep that a peer is left out, and why."""
        self._keep(json.dumps({"left_out": peer, "cause": cause}))

    def _keep(self, line: str) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def machine() -> dict[str, object]:
    """Describe the machine in words and numbers."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": len(os.sched_getaffinity(0)),
        "processor": models[0].partition(":")[2].strip() if models else platform.machine(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
