"""The connection of a reading program to the back, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from xbus.errors import ConnectionLost, TimedOut
from xbus.rpc.codec import Value
from xbus.testing.timing import Timing


class AnsweringBroker(Protocol):
    """A broker that answers the calls of reading programs while it serves."""

    @property
    def serves(self) -> bool:
        """Check whether it answers calls now."""

    async def answer_reader(self, name: str, args: object) -> Value:
        """Answer a call.

        Raises:
            ConnectionLost: it went down.
        """


class ReadingConnection:
    """Stands in for ``rpc.client.Client``.

    Args:
        find_broker: gives the broker that runs now, or None.
        timing: chooses the times that calls take.
    """

    def __init__(self, find_broker: Callable[[], AnsweringBroker | None], timing: Timing) -> None:
        self._find_broker = find_broker
        self._timing = timing
        self._calls: set[asyncio.Task[Value]] = set()
        self._is_dead = False

    def call(self, method: str, *args: object, timeout: float | None = None) -> "asyncio.Future[Value]":
        """Call a verb of the back; the task of a dead program that waits for the answer ends."""
        loop = asyncio.get_running_loop()
        if self._is_dead:
            ended: asyncio.Future[Value] = loop.create_future()
            ended.cancel()
            return ended
        call = loop.create_task(self._answer(method, args, timeout))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    async def _answer(self, method: str, args: tuple[object, ...], timeout: float | None) -> Value:
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(self._timing.way())
                broker = self._find_broker()
                if broker is None or not broker.serves:
                    raise ConnectionLost("the broker is away")
                return await broker.answer_reader(method, args)
        except TimeoutError:
            raise TimedOut(f"no answer to {method} within {timeout:g} s") from None

    def kill(self) -> None:
        """Go down with the program: nothing is sent any more, and nobody waits for an answer."""
        self._is_dead = True
        for call in self._calls:
            call.cancel()
