"""How much memory a process takes."""

from pathlib import Path

KIB_PER_MIB = 1024


def resident_mib(pid: int) -> float:
    """What is resident now, in MiB."""
    return _status(pid, "VmRSS")


def peak_mib(pid: int) -> float:
    """The most that was ever resident, in MiB."""
    return _status(pid, "VmHWM")


def _status(pid: int, field: str) -> float:
    """A field of proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) / KIB_PER_MIB
