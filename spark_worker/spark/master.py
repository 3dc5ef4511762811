"""The address of Spark's master and the settings of a session, as texts of the command line. Pure, without Spark."""

import re
from collections.abc import Iterable

_MASTER = re.compile(r"local(\[([1-9]\d*|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|\w+://.+")
MASTER_PORT = 7077


def check_master(master: str) -> str:
    """Check the address of a master: for an invalid one Spark would show a stack of Java's.

    Raises:
        ValueError: the address is invalid.
    """
    if not _MASTER.fullmatch(master):
        raise ValueError(f"{master!r} is no master: local[2], local[*], spark://host:7077, yarn or k8s://…")
    return master


def is_local(master: str) -> bool:
    """Check whether the executors run in the driver's own process."""
    return master == "local" or master.startswith("local[")


def places(master: str) -> list[tuple[str, int]]:
    """List host and port of each master of a standalone cluster; none for other kinds of master."""
    if not master.startswith("spark://"):
        return []
    found = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        found.append((host or place, int(port) if host and port.isdigit() else MASTER_PORT))
    return found


def parsed_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Read ``key=value`` of the command line.

    Raises:
        ValueError: one has no key, or no ``=``.
    """
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"{pair} is not key=value")
        found[key.strip()] = value
    return found
