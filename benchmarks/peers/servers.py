"""Servers of peers, each in processes of its own on a free port of loopback."""

import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import Process, run
from tests.support.waiting import wait_until


class PeerMissing(Exception):
    """A peer can't be measured on this machine."""


@dataclass(frozen=True)
class PeerServer:
    """A server that answers.

    Attributes:
        address: where its clients connect to.
        pids: its processes; what those have started counts too.
        version: as it says it itself.
    """

    address: str
    pids: tuple[int, ...]
    version: str


def program(name: str, *folders: str) -> str:
    """Find a program on the path, or in one of the folders.

    Raises:
        PeerMissing: it is not there.
    """
    found = next(filter(None, (shutil.which(name, path=folder) for folder in (*folders, None))), None)
    if found is None:
        raise PeerMissing(f"there is no {name} on the path")
    return found


def version_of(*command: str) -> str:
    """Ask a program for its version: the first number with points that it says."""
    said = re.search(r"\d+(\.\d+)+", run(*command).stdout)
    return said.group() if said else "unknown"


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for a server's data."""
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@contextmanager
def serving(
    command: list[str], port: int, output: Path, env: Mapping[str, str] | None = None, seconds: float = 60.0
) -> Iterator[Process]:
    """A server that listens at a port, ended at the end.

    Raises:
        PeerMissing: it ends at once, for example as it does not know a setting.
    """
    process = Process(*command, output=output, env=env)
    try:
        wait_until(lambda: not process.runs or _listens(port), f"{command[0]} listens", seconds)
        if not process.runs:
            last_words = process.text.replace(f"{output.parent}/", "").strip().rpartition("\n")[2]
            raise PeerMissing(f"it ended at once, saying: {last_words}")
        yield process
    finally:
        process.kill()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
