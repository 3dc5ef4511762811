"""Ports of this machine for programs that a test starts."""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

FIRST, LAST = 20_000, 32_000
"""Below those that systems give to sockets that ask for any."""


class Claims:
    """Ports that one process of one test run has for itself until it ends, whoever else runs tests on this machine.

    A port is a byte of a file that all of them lock. Looking whether it is free would not do: between that look and the
    start of the program for which it is meant another run may choose the same one, or just look at it.

    Args:
        path: the file; made where it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._mine: set[int] = set()
        # To be kept open: the locks go when it is closed.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def claim(self, port: int) -> bool:
        """Have a port from now on; false where it is another's, or was claimed before."""
        if port in self._mine:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):  # another process has it
            return False
        self._mine.add(port)
        return True

    def close(self) -> None:
        """Give all of them back."""
        os.close(self._file)
        self._mine.clear()


def free_port() -> int:
    """A TCP port on which nobody listens, and which no other test is given.

    A program that a test stops finds it free when it is started again: in the meantime no connection gets it.
    """
    while True:
        port = random.randint(FIRST, LAST)
        if _claims().claim(port) and _is_free(port):
            return port


@cache
def _claims() -> Claims:
    """Those of this process."""
    return Claims(Path(tempfile.gettempdir()) / f"xbus-test-ports-{os.getuid()}")


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:  # a program that claims none has it
            return False
    return True
