"""Ports of this machine for programs that a test starts."""

import random
import socket
from contextlib import closing

FIRST, LAST = 20_000, 32_000
"""Below those that systems give to sockets that ask for any."""


def free_port() -> int:
    """A TCP port on which nobody listens.

    A program that a test stops finds it free when it is started again: in the meantime no connection gets it.
    """
    while True:
        port = random.randint(FIRST, LAST)
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:  # taken
                continue
            return port
