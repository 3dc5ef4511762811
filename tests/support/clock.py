"""A clock that stands still until it is told to go on."""

from datetime import UTC, datetime, timedelta


class StandingClock:
    """Shows noon of a leap day, and later what was added."""

    def __init__(self) -> None:
        self._passed = timedelta()

    def go_on(self, seconds: float) -> None:
        self._passed += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return datetime(2020, 2, 29, 12, 0, tzinfo=UTC) + self._passed

    def monotonic(self) -> float:
        return self._passed.total_seconds()
