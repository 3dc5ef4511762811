"""Items that wait for an absent consumer: the peak memory of the broker's process while they came in, in MiB.

Floor: its memory while idle, before the first of them.
"""

from benchmarks.bus import running_bus
from benchmarks.databases import Databases
from benchmarks.programs.running import emit
from benchmarks.result import Result
from benchmarks.sizes import Sizes
from tests.support.memory import peak_mib, resident_mib


def measure(databases: Databases, sizes: Sizes) -> Result:
    """One round: what a process has taken once it does not give back."""
    with databases() as url, running_bus(url) as daemon:
        idle = resident_mib(daemon.pid)
        emit(daemon.front, sizes.backlog_envelopes, sizes.envelope_items)
        return Result(peak_mib(daemon.pid), idle, "MiB")
