"""Decides how long an emitter insists, and how fast it tries again. Pure."""

from xbus.backoff import Backoff, Patience
from xbus.clock import Clock
from xbus.errors import CallError

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 2.0


class EmitterPatience(Patience):
    """Measures a row of failed calls.

    Args:
        seconds: as of ``Patience``.
        clock: tells the time.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        super().__init__(seconds, Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS), clock.monotonic)

    def given_up(self, error: CallError) -> CallError:
        """Word ``error`` for a caller whose repeats were in vain; unchanged without repeats."""
        insisted = ", and trying again for `retry_seconds` did not help" if self.seconds else ""
        next_step = error.next_step or "see whether the bus runs at this address"
        return type(error)(f"{error.cause}{insisted}", next_step, code=error.code)
