"""Knows when a range has a batch by itself: its items have waited long enough, or the subscriber is called again."""

from xbus.broker.journal.readers import ReaderRange
from xbus.clock import Clock


class BatchTimes:
    """The times of the ranges of one reader.

    Args:
        clock: says what time it is.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits_since: dict[int, float] = {}
        """Since when a range has items that are too few for a batch."""

    def may_wait(self, range_id: int, batch_wait: float) -> bool:
        """Check whether items that are too few for a batch may wait for more."""
        now = self._clock.monotonic()
        return batch_wait > 0 and now < self._waits_since.setdefault(range_id, now) + batch_wait

    def put_out(self, range_id: int) -> None:
        """Note that a range has a batch."""
        self._waits_since.pop(range_id, None)

    def is_too_early(self, found: ReaderRange) -> bool:
        """Check whether the batch that is out is not to be handed out again yet."""
        return found.handed_out and found.retry_at is not None and self._clock.now() < found.retry_at

    def seconds_to(self, found: ReaderRange, batch_wait: float) -> float:
        """Say in how many seconds a range has a batch by itself; 0 or less for no such moment."""
        if found.handed_out:
            return 0.0 if found.retry_at is None else (found.retry_at - self._clock.now()).total_seconds()
        if found.id in self._waits_since:
            return self._waits_since[found.id] + batch_wait - self._clock.monotonic()
        return 0.0
