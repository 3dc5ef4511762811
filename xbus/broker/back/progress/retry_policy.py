"""The retry policy: how many attempts an envelope gets, and the delays between them; pure."""

from dataclasses import asdict, dataclass, replace

from xbus.broker.journal.log.catalog import RetrySettings
from xbus.config import BackSettings

MAX_DOUBLINGS = 60
"""More of them make no delay longer, and would not fit a number."""

_DEFAULTS = BackSettings()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The settings of a service for envelopes that failed at a consumer and may succeed later.

    Args:
        attempts: how often it is tried in all; then it is parked.
        first_delay: seconds before the second attempt, doubled with each further one.
        longest_delay: no delay is longer than this, in seconds.
        jitter: by which part a delay is made longer or shorter at random, 0 to 1: those who failed together do not come
            back together.
    """

    attempts: int = _DEFAULTS.attempts
    first_delay: float = _DEFAULTS.first_delay
    longest_delay: float = _DEFAULTS.longest_delay
    jitter: float = _DEFAULTS.jitter

    @classmethod
    def of(cls, settings: BackSettings) -> "RetryPolicy":
        """Take it from the configuration: for services that have no wishes of their own."""
        return cls(settings.attempts, settings.first_delay, settings.longest_delay, settings.jitter)

    def as_wished(self, wishes: RetrySettings) -> "RetryPolicy":
        """Apply the settings of a service to this policy."""
        given = {name: value for name, value in asdict(wishes).items() if value is not None}
        return replace(self, **given)

    def delay(self, attempts: int, draw: float) -> float:
        """Compute the delay before the next attempt, in seconds.

        Args:
            attempts: how many were made.
            draw: a random number from 0 to 1.
        """
        doubled = self.first_delay * 2.0 ** min(max(attempts - 1, 0), MAX_DOUBLINGS)
        delay = min(doubled, self.longest_delay)
        return min(delay * (1 + self.jitter * (2 * draw - 1)), self.longest_delay)
