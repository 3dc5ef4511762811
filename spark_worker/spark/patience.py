"""Insisting on a database that is away for a while."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from xbus.backoff import Backoff, Patience
from xbus.errors import JournalError, JournalUnavailable
from xbus.waiting import WaitLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 2.0


class DatabasePatience(Patience):
    """Measures a row of failures of a database, waits, and tells why.

    Args:
        seconds: as of ``Patience``.
        sleep: waits for so many seconds.
        now: the time in seconds, from any start.
    """

    def __init__(
        self, seconds: float, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(seconds, Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), now)
        self._sleep = sleep
        self._log = WaitLog(logger, "database_away", now)

    def succeeded(self) -> None:
        """As ``Patience.succeeded``; the wait is over, too."""
        super().succeeded()
        self._log.ends()

    def wait_after(self, error: JournalError) -> None:
        """Wait before the next try.

        Raises:
            JournalError: ``error``, as the time is over.
        """
        delay = self.failed()
        if delay is None:
            raise error
        self._log.waits(error, self.seconds)
        self._sleep(delay)


def insist(patience: DatabasePatience, question: Callable[[], T]) -> T:
    """Repeat a question to the database until it answers, and give the answer.

    Raises:
        JournalUnavailable: it is away for longer than the patience lasts.
    """
    while True:
        try:
            return question()
        except JournalUnavailable as error:
            patience.wait_after(error)
