"""Time as something that is handed in, so that tests never wait for it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

LONGEST_SPAN = timedelta(days=36_500)
"""The span that stands for ever: any moment of this century plus or minus it is still a date."""


class Clock(Protocol):
    """The sources of time."""

    def now(self) -> datetime:
        """Give the date and time in UTC, for what is stored and shown."""

    def monotonic(self) -> float:
        """Give seconds that only ever grow, for measuring durations."""


SHIFT = timedelta(seconds=1)
"""A machine's clock that is wrong by less counts as right: a look at another clock takes time, too."""


class SystemClock:
    """The machine's own clock. It calls no Python function, as each message asks for the time."""

    now: Callable[[], datetime] = staticmethod(partial(datetime.now, UTC))
    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def follow(self, moment: datetime) -> None:
        """Tell the time of another clock from now on, where this one differs from it.

        Args:
            moment: of the other clock, as of now.
        """
        ahead = moment - SystemClock.now()
        self.now = SystemClock.now if abs(ahead) < SHIFT else lambda: SystemClock.now() + ahead


def span(seconds: float) -> timedelta:
    """Make a span of time, also of an infinite number of seconds: the longest span stands for it.

    Args:
        seconds: at least 0.
    """
    return timedelta(seconds=min(seconds, LONGEST_SPAN.total_seconds()))
