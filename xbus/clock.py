"""Time as something that is handed in, so that tests never wait for it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The sources of time."""

    def now(self) -> datetime:
        """Give the date and time in UTC, for what is stored and shown."""

    def monotonic(self) -> float:
        """Give seconds that only ever grow, for measuring durations."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
