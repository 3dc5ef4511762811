"""The doctor's look at the machine: the space of its disk, the journal's file, the descriptors of a process."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from xbus import private_files
from xbus.admin.doctor.findings import DoctorFinding

LEAST_FREE_BYTES = 2**30
"""Free bytes below which a disk is short. A busy bus may write as much within a minute."""

LEAST_DESCRIPTORS = 4096
"""Descriptors below which a broker is short: each connection takes one."""

MIB = 2**20


def look_at_machine(journal_file: Path | None) -> Iterator[DoctorFinding]:
    """Find a full disk, a journal that others may read, and a low limit of descriptors.

    Args:
        journal_file: the file of a journal in SQLite that is on this machine.
    """
    if journal_file is not None and journal_file.parent.exists():
        yield from _disk(journal_file)
    if journal_file is not None and private_files.is_open_to_others(journal_file):
        yield DoctorFinding(
            "journal_open_to_others",
            str(journal_file),
            "others on this machine may read the journal",
            f"chmod 600 {journal_file} {journal_file}-*",
        )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        yield DoctorFinding(
            "few_descriptors",
            "descriptors",
            f"a process of this user may have {hard} descriptors, and each connection takes one",
            f"set LimitNOFILE={LEAST_DESCRIPTORS * 16} in the unit of the broker, or ulimit -n before its start",
            is_problem=False,
        )


def _disk(journal_file: Path) -> Iterator[DoctorFinding]:
    free = shutil.disk_usage(journal_file.parent).free
    if free < LEAST_FREE_BYTES:
        yield DoctorFinding(
            "disk_short",
            str(journal_file.parent),
            f"the disk of the journal has {free // MIB} MiB left",
            "make room, or set [journal] max_bytes, keep_settled_days or an archive",
        )
