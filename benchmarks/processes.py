"""What processes have taken of the machine."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.memory import peak_mib

_PARENT = 1
_TIMES_OF_ENDED = slice(13, 15)
"""Fields of proc_pid_stat(5), counted from the one behind the name: the parent, and the times of ended children."""

_CPU_CLOCK = 2
"""That a clock counts processor time, in the last three bits of its id: ``CPUCLOCK_SCHED`` of Linux."""


def cpu_seconds(*pids: int) -> float:
    """Read the processor seconds of processes and of all that they have started.

    They are exact but for children that have ended, which the system counts in hundredths.
    """
    return sum(map(_cpu_seconds, _with_children(pids)))


def _cpu_seconds(pid: int) -> float:
    # As of clock_getcpuclockid(3), which Python lacks: a short benchmark takes less than a tick of proc_pid_stat(5).
    own = time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    return own + sum(map(int, _fields(Path(f"/proc/{pid}/stat"))[_TIMES_OF_ENDED])) / os.sysconf("SC_CLK_TCK")


def peaks_mib(*pids: int) -> float:
    """Read the most memory that each of the processes ever had, and what they have started; the sum, in MiB.

    What processes share counts for each of them.
    """
    return sum(peak_mib(pid) for pid in _with_children(pids))


def _with_children(pids: tuple[int, ...]) -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(_fields(stat)[_PARENT]), []).append(int(stat.parent.name))
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            pass
    found = list(pids)
    for pid in found:  # which grows meanwhile
        found += parents.get(pid, ())
    return iter(found)


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()
