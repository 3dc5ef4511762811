"""Watches the sockets of many connections with one callback of the event loop.

A callback for each socket costs the loop ten calls of Python functions for each part that it reads. And whoever knows
that all sockets of a turn are read can do things once for all of them.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import TypeAlias

Act: TypeAlias = Callable[[], object]


class SocketWatch:
    """Calls the readers and writers of sockets, all that are ready in one turn of the loop behind each other.

    Attributes:
        turn: the number of turns in which something was ready.
    """

    def __init__(self) -> None:
        # Made with the first socket, as its own descriptor is ready when one of its sockets is.
        self._selector: selectors.DefaultSelector | None = None
        self._watched: dict[int, tuple[Act | None, Act | None]] = {}
        """By descriptor, its reader and its writer."""
        self._acts: list[Act] = []
        self._is_busy = False
        self.turn = 0

    def add_reader(self, descriptor: int, act: Act) -> None:
        """Have ``act`` called whenever something can be read."""
        self._watch(descriptor, act, self._watched.get(descriptor, (None, None))[1])

    def remove_reader(self, descriptor: int) -> None:
        """Call nobody any more when something can be read."""
        self._watch(descriptor, None, self._watched.get(descriptor, (None, None))[1])

    def add_writer(self, descriptor: int, act: Act) -> None:
        """Have ``act`` called whenever something can be written."""
        self._watch(descriptor, self._watched.get(descriptor, (None, None))[0], act)

    def remove_writer(self, descriptor: int) -> None:
        """Call nobody any more when something can be written."""
        self._watch(descriptor, self._watched.get(descriptor, (None, None))[0], None)

    def at_end(self, act: Act) -> None:
        """Do something when all is read that is ready in this turn; in the next turn where nothing is being read."""
        if not self._acts and not self._is_busy:
            asyncio.get_running_loop().call_soon(self._end)
        self._acts.append(act)

    def run(self, act: Act) -> None:
        """Do something, and then at once what ``at_end`` got meanwhile."""
        if self._is_busy:
            act()
            return
        self._is_busy = True
        try:
            act()
        finally:
            self._is_busy = False
            self._end()

    def close(self) -> None:
        """Watch nothing any more."""
        self._acts.clear()
        self._watched.clear()
        if self._selector is not None:
            asyncio.get_running_loop().remove_reader(self._selector)
            self._selector.close()
            self._selector = None

    def _watch(self, descriptor: int, reader: Act | None, writer: Act | None) -> None:
        events = (selectors.EVENT_READ if reader else 0) | (selectors.EVENT_WRITE if writer else 0)
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            asyncio.get_running_loop().add_reader(self._selector, self._look)
        is_watched = descriptor in self._watched
        if not events:
            if is_watched:
                del self._watched[descriptor]
                self._selector.unregister(descriptor)
            return
        self._watched[descriptor] = reader, writer
        if is_watched:
            self._selector.modify(descriptor, events)
        else:
            self._selector.register(descriptor, events)

    def _look(self) -> None:
        assert self._selector is not None, "it is watched"
        self.turn += 1
        self._is_busy = True
        for key, events in self._selector.select(0):
            # One before it may have ended this connection, or stopped it.
            if events & selectors.EVENT_READ and (act := self._watched.get(key.fd, (None, None))[0]):
                try:
                    act()
                except Exception as error:
                    _tell(error)
            if events & selectors.EVENT_WRITE and (act := self._watched.get(key.fd, (None, None))[1]):
                try:
                    act()
                except Exception as error:
                    _tell(error)
        self._is_busy = False
        self._end()

    def _end(self) -> None:
        while self._acts:
            acts, self._acts = self._acts, []
            for act in acts:
                try:
                    act()
                except Exception as error:
                    _tell(error)


def _tell(error: Exception) -> None:
    """Tell of an error as the loop does: the other connections are served all the same."""
    asyncio.get_running_loop().call_exception_handler({"message": "a connection failed", "exception": error})
