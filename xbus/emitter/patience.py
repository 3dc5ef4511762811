"""Decides how long an emitter insists, and how fast it tries again. Pure."""

from xbus.backoff import Backoff
from xbus.clock import Clock
from xbus.errors import CallError

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0


class Patience:
    """Measures a row of failures.

    Args:
        seconds: how long the row may last, counted from its first failure.
        clock: tells the time.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self._backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)

    def succeeded(self) -> None:
        """Something went well: the next failure begins a new row."""
        self._until = None
        self._backoff.reset()

    def failed(self) -> float | None:
        """One more failure: the seconds to wait before the next try, or None when it is time to give up."""
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now >= self._until:
            return None
        return min(self._backoff.next(), self._until - now)

    def given_up(self, error: CallError) -> CallError:
        """``error`` in the words of someone who insisted in vain, if anybody did."""
        insisted = ", and trying again for `retry_seconds` did not help" if self._seconds else ""
        next_step = error.next_step or "see whether the bus runs at this address"
        return type(error)(f"{error.cause}{insisted}", next_step, code=error.code)
