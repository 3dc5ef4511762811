"""Items that wait for an absent consumer: the peak memory of the broker's process while they came in, in MiB.

Floor: its memory while idle, before the first of them.
"""

from pathlib import Path

from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.programs.running import emit
from benchmarks.result import Result
from benchmarks.sizes import Sizes

KIB_PER_MIB = 1024


def measure(databases: Databases, sizes: Sizes) -> Result:
    """One round: what a process has taken once it does not give back."""
    with databases() as url, running_bus(url) as daemon:
        idle = _memory(daemon.pid, "VmRSS")
        emit(daemon.front, sizes.backlog_envelopes, sizes.envelope_items)
        return Result(_memory(daemon.pid, "VmHWM"), idle, "MiB")


def _memory(pid: int, field: str) -> float:
    """``VmRSS``, resident now, or ``VmHWM``, its peak, in MiB: see proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) / KIB_PER_MIB
