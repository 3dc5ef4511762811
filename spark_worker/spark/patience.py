"""Insisting on a database that is away for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

from xbus.backoff import Backoff
from xbus.errors import JournalError, JournalUnavailable

T = TypeVar("T")

FIRST_DELAY = 0.1
LONGEST_DELAY = 2.0


class DatabasePatience:
    """Says how long to insist: for so many seconds since something went well last.

    Args:
        seconds: after this nothing is tried again.
        sleep: waits for so many seconds.
        now: the time in seconds, from any start.
    """

    def __init__(
        self, seconds: float, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._now = now
        self._backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)
        self._since: float | None = None

    def succeeded(self) -> None:
        """Something went well: the time begins anew with the next failure."""
        self._since = None
        self._backoff.reset()

    def failed(self, error: JournalError) -> None:
        """Wait before the next try.

        Raises:
            JournalError: ``error``, as the time is over.
        """
        if self._since is None:
            self._since = self._now()
        if self._now() - self._since >= self._seconds:
            raise error
        self._sleep(self._backoff.next())


def insist(patience: DatabasePatience, question: Callable[[], T]) -> T:
    """What a question to the database is answered, asked again while that is away.

    Raises:
        JournalUnavailable: it is away for longer than the patience lasts.
    """
    while True:
        try:
            return question()
        except JournalUnavailable as error:
            patience.failed(error)
