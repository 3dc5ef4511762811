"""What processes have taken of the machine."""

import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.memory import peak_mib

_PARENT = 1
_TIMES = slice(11, 15)
"""Fields of proc_pid_stat(5), counted from the one behind the name: of the process and of its children that ended."""


def cpu_seconds(*pids: int) -> float:
    """Read the processor seconds of processes and of all that they have started; exact to a hundredth."""
    times = [sum(map(int, _fields(Path(f"/proc/{pid}/stat"))[_TIMES])) for pid in _with_children(pids)]
    return sum(times) / os.sysconf("SC_CLK_TCK")


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
