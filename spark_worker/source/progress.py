"""Chooses where the next micro-batch ends."""

from collections.abc import Callable

IDLE_POSITIONS = 1_000
"""After so many envelopes of other types a query goes on to where the log is: they need not be passed again."""

IDLE_SECONDS = 60.0
"""The same after such a time, so that what the bus removes one day has been passed by then."""


class StreamProgress:
    """Says where micro-batches end. What it remembers only saves work.

    Args:
        next_end: asks the log where a micro-batch ends that begins behind a position and does not reach further than a
            second one, nor holds more than so many items; None where there is nothing to read.
        now: the time in seconds, from any start.
    """

    def __init__(self, next_end: Callable[[int, int, int | None], int | None], now: Callable[[], float]) -> None:
        self._next_end = next_end
        self._now = now
        self._empty_until = 0
        self._idle_since = now()

    def next_end(self, after: int, until: int, most_items: int | None) -> int:
        """The position at which the next micro-batch ends; ``after`` where there is none.

        Args:
            after: all up to there has been read.
            until: where the log ends.
            most_items: how many items it may hold, where one envelope does not hold more; None for no limit.
        """
        unseen = max(after, self._empty_until)
        end = self._next_end(unseen, until, most_items) if unseen < until else None
        if end is None:
            self._empty_until = max(unseen, until)
            return self._idle(after, until)
        self._idle_since = self._now()
        return end

    def _idle(self, after: int, until: int) -> int:
        """Where there is nothing of the type a micro-batch would only cost; but now and then one moves on."""
        is_due = until - after >= IDLE_POSITIONS or self._now() - self._idle_since >= IDLE_SECONDS
        if until <= after or not is_due:
            return after
        self._idle_since = self._now()
        return until
