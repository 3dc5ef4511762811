"""Takes the connections that come to a server's sockets, and waits while no file descriptor is free."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from xbus.clock import Clock
from xbus.log_throttle import LogThrottle

log = logging.getLogger(__name__)

_AT_ONCE = 50
"""Connections that are taken in one turn of the loop. More keep the connected ones waiting."""

_NO_DESCRIPTOR_SECONDS = 1.0
"""Seconds until connections are taken again after no descriptor was free."""

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Takes connections in the running loop.

    Args:
        name: of the server, for the log.
        clock: measures how often the log tells that none can be taken.
        begin: gets each connection, and the address of its peer.
    """

    def __init__(self, name: str, clock: Clock, begin: Callable[[socket.socket, str], None]) -> None:
        self._name = name
        self._begin = begin
        self._shortages = LogThrottle(clock)
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self.sockets: list[socket.socket] = []
        """They listen; their owner closes them."""

    def start(self) -> None:
        """Take connections from now on."""
        for listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def stop(self) -> None:
        """Take no more connections."""
        if self._again is not None:
            self._again.cancel()
        for listening in self.sockets:
            self._loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, place = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                self._accept_later(error)
                return
            self._begin(accepted, str(place[0]))

    def _accept_later(self, error: OSError) -> None:
        """Take nobody for a moment: whoever waits for a descriptor would keep the loop busy."""
        if count := self._shortages.note(""):
            extra = {"action": "connection_not_taken", "cause": str(error), "count": count}
            log.error("%s: a connection can't be taken", self._name, extra=extra)
        self.stop()
        self._again = self._loop.call_later(_NO_DESCRIPTOR_SECONDS, self.start)
