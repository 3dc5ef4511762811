"""The open streams of server-sent events: each sample tells all of them that there is something new to see.

A stream carries no figures: the page fetches the parts that it shows, as the person who looks may see them.
Format: HTML Living Standard, section 9.2, "Server-sent events".
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

from xbus.errors import Failed

MOST_STREAMS = 200
"""Streams at once. Each takes some memory, and a look at its session each few seconds."""

MOST_OF_A_PERSON = 12
"""Streams of one person at once, so that nobody takes the place of all others."""

HEARTBEAT_SECONDS = 15.0
"""Seconds without a sample after which a stream shows that it is alive. More notices later that a viewer is gone."""

NEWS = "event: sample\ndata:\n\n"
ALIVE = ": alive\n\n"
END = "event: end\ndata:\n\n"


class Audience:
    """All who look just now; it belongs to one event loop.

    Args:
        heartbeat_seconds: between two signs of life.
        most: streams at once.
        most_of_a_person: those of one person.
    """

    def __init__(
        self,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        most: int = MOST_STREAMS,
        most_of_a_person: int = MOST_OF_A_PERSON,
    ) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._most = most
        self._most_of_a_person = most_of_a_person
        self._streams: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._is_over = False

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return self._streams.total()

    def tell(self) -> None:
        """Tell all who look that there is something new."""
        self._news.set()
        self._news = asyncio.Event()

    def end(self) -> None:
        """End all streams: the monitor stops."""
        self._is_over = True
        self.tell()

    def check_room(self, person: str) -> None:
        """Let a person pass for whom one more stream may be opened.

        Raises:
            Failed: too many are open (``slow_down``).
        """
        if self._streams.total() >= self._most or self._streams[person] >= self._most_of_a_person:
            raise Failed("too many pages are open", "close some of them", code="slow_down")

    async def stream(self, person: str, is_in_force: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """Give the events of one stream.

        Args:
            person: the name of the person who looks.
            is_in_force: tells whether the session of the person goes on; the stream ends with it.
        """
        with self._seat(person):
            yield NEWS
            while not self._is_over:
                has_news = await self._wait()
                if self._is_over or not await is_in_force():
                    break
                yield NEWS if has_news else ALIVE
            yield END

    async def _wait(self) -> bool:
        """Wait for something new; False after the time for a sign of life."""
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    @contextmanager
    def _seat(self, person: str) -> Iterator[None]:
        self._streams[person] += 1
        try:
            yield
        finally:
            self._streams[person] -= 1
            if not self._streams[person]:
                del self._streams[person]
