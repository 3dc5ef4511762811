"""A terminal of a chosen width, in which a program runs."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping

SECONDS = 60.0


def run_in_terminal(*command: str, columns: int, env: Mapping[str, str] | None = None) -> str:
    """Run a program whose output and errors go to a terminal, and give all that it wrote there.

    Args:
        columns: the terminal's width.
        env: is added to the environment.
    """
    ours, its = pty.openpty()
    try:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=its,
            env={**environment, "TERM": "xterm", **(env or {})},
        )
    finally:
        os.close(its)
    written = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    assert process.wait(SECONDS) == 0, written
    return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody has the other end open any more
        return b""
