"""Says when a delivery that went wrong gets its next attempt."""

from datetime import datetime
from random import Random

from xbus.broker.back.progress.bad_item_search import Serving
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients import RecipientFailed, Registry
from xbus.clock import Clock, span


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
