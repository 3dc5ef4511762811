"""The ports at which a process listens, as the system knows them."""

import os
from pathlib import Path

LISTEN = "0A"
"""The state of a listening socket in ``/proc/net/tcp``."""


def listening_ports(pid: int) -> set[int]:
    """The TCP ports that a process has opened, of IPv4 and IPv6."""
    own = _sockets(pid)
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == LISTEN and rest[5] in own:
                found.add(int(local.rpartition(":")[2], 16))
    return found


def _sockets(pid: int) -> set[str]:
    """The inodes of the sockets that a process has."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found
