"""The retry policy: how many attempts an envelope gets, and when each of them comes."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from random import Random

from xbus.broker.back.progress.bad_item_search import Serving
from xbus.broker.back.recipients import RecipientFailed, Registry
from xbus.broker.journal.log.catalog import RetrySettings
from xbus.clock import Clock, span
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


class RetrySchedule:
    """The times of attempts.

    It is the policy of the consumer's service that counts, also where a worker before it failed: whose envelope it is
    decides how long it may take.

    Args:
        policy: what counts for services that have no wishes of their own.
        registry: knows who is registered.
        clock: says what time it is.
        random: makes delays longer or shorter.
    """

    def __init__(self, policy: RetryPolicy, registry: Registry, clock: Clock, random: Random) -> None:
        self._policy = policy
        self._registry = registry
        self._clock = clock
        self._random = random

    def attempts(self, recipient: Serving) -> int:
        """Give the number of attempts that a consumer's service wants in all."""
        return self._policy.as_wished(recipient.role.retry).attempts

    def after_attempts(self, recipient: Serving, attempts: int) -> datetime | None:
        """Compute when the next attempt is due after this many; None for at once."""
        delay = self._policy.as_wished(recipient.role.retry).delay(attempts, self._random.random())
        return self._due_at(recipient, delay)

    def when_back(self, recipient: Serving, why: RecipientFailed) -> datetime | None:
        """Compute when a delivery is due that met a leaving recipient: it waits for the next one, without a delay."""
        if why.role_id is None or self._registry.get(why.role_id) is None:
            return None
        return self._due_at(recipient, self._policy.as_wished(recipient.role.retry).first_delay)

    def _due_at(self, recipient: Serving, delay: float) -> datetime | None:
        """Delay a delivery to a recipient that fails; one that is gone gets it as soon as it is back."""
        if not self._registry.is_serving(recipient, recipient.role.id):
            return None
        return self._clock.now() + span(delay)
