"""What a process has taken of the machine."""

import os
from pathlib import Path

_USER, _SYSTEM = 11, 12
"""Fields of proc_pid_stat(5), counted from the one behind the name."""


def cpu_seconds(pid: int) -> float:
    """Read the processor seconds of a process and all its threads; exact to a hundredth."""
    behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(behind_name[_USER]) + int(behind_name[_SYSTEM])) / os.sysconf("SC_CLK_TCK")
