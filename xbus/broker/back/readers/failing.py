"""Decides when a batch that a subscriber did not take is called again, and when it is parked.

The rules are those of all deliveries: a number of attempts with growing delays, and a breaker for a subscriber
that takes nothing at all. A subscriber that can't be reached is absent: that counts as no attempt.
"""

from dataclasses import dataclass
from datetime import datetime
from random import Random

from xbus.broker.back.progress import RetryPolicy
from xbus.broker.back.recipients import CircuitBreaker
from xbus.broker.journal.readers.ranges import ReaderRange
from xbus.broker.journal.readers.settings import ReaderEntry
from xbus.clock import Clock, span
from xbus.config import BackSettings

UNCOUNTED = frozenset({"callback_unreachable", "callback_not_allowed"})
"""The codes of calls that did not reach the subscriber: no batch is to blame for these."""


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """The next call of a batch that was not taken.

    Args:
        attempts: those that count, with the present one.
        retry_at: the moment of the next call; None for a batch that is parked.
    """

    attempts: int
    retry_at: datetime | None


class FailingBatches:
    """The batches of one subscription that were not taken.

    Args:
        settings: the policy of subscriptions without wishes of their own, and the limits of the breaker.
        clock: says what time it is.
        random: makes delays longer or shorter.
    """

    def __init__(self, settings: BackSettings, clock: Clock, random: Random) -> None:
        self._policy = RetryPolicy.of(settings)
        self._probe_interval = settings.probe_interval
        self._breaker = CircuitBreaker(clock, after=settings.trouble_after, probe_interval=settings.probe_interval)
        self._clock = clock
        self._random = random
        self._missed: dict[int, int] = {}
        """The number of calls in a row that did not reach the subscriber with the batch of a range."""

    def failed(self, entry: ReaderEntry, current: ReaderRange, code: str) -> NextAttempt:
        """Decide about the batch of a range that is out, after a call that failed."""
        policy = self._policy.as_wished(entry.retry)
        if code in UNCOUNTED:
            self._missed[current.id] = missed = self._missed.get(current.id, 0) + 1
            return self._later(current.attempts, policy.delay(current.attempts + missed, self._random.random()))
        self._missed.pop(current.id, None)
        self._breaker.failed(hash((current.id, current.batch_begin)))
        if self._breaker.is_tripped:
            return self._later(current.attempts, max(self._probe_interval, policy.first_delay))
        attempts = current.attempts + 1
        if attempts >= policy.attempts:
            return NextAttempt(attempts, None)
        return self._later(attempts, policy.delay(attempts, self._random.random()))

    def taken(self, range_id: int) -> None:
        """Note that a batch of a range was taken."""
        self._missed.pop(range_id, None)
        self._breaker.went_well()

    def _later(self, attempts: int, delay: float) -> NextAttempt:
        return NextAttempt(attempts, self._clock.now() + span(delay))
