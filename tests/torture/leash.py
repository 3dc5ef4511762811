"""``python leash.py PID PROGRAM ARGUMENT ...``: becomes the program, which is killed when the process of that id ends.

So nothing outlives the run, not even one that was killed. Where the system has no such service, the program runs all
the same.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Put this process on the leash and become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
