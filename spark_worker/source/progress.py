"""Chooses where the next micro-batch ends."""

from collections.abc import Callable

IDLE_POSITIONS = 1_000
"""Envelopes of other types after which a query moves on to the end of the log."""

IDLE_SECONDS = 60.0
"""The same after such a time, so that what the bus removes one day has been passed by then."""


class StreamProgress:
    """Says where micro-batches end. Its memory only saves work.

    Args:
        next_end: asks the log for the end of a micro-batch: behind a position, up to a second one, with at most so many
            items. None if the log has nothing to read there.
        now: the time in seconds, from any start.
    """

    def __init__(self, next_end: Callable[[int, int, int | None], int | None], now: Callable[[], float]) -> None:
        self._next_end = next_end
        self._now = now
        self._empty_until = 0
        self._idle_since = now()

    def next_end(self, after: int, until: int, most_items: int | None) -> int:
        """Find the position at which the next micro-batch ends; ``after`` without one.

        Args:
            after: everything up to there has been read.
            until: the end of the log.
            most_items: the most items, unless one envelope alone has more; None for no limit.
        """
        unseen = max(after, self._empty_until)
        end = self._next_end(unseen, until, most_items) if unseen < until else None
        if end is None:
            self._empty_until = max(unseen, until)
            return self._idle(after, until)
        self._idle_since = self._now()
        return end

    def _idle(self, after: int, until: int) -> int:
        """Move a query on now and then though the type has no events: each micro-batch has a cost."""
        is_due = until - after >= IDLE_POSITIONS or self._now() - self._idle_since >= IDLE_SECONDS
        if until <= after or not is_due:
            return after
        self._idle_since = self._now()
        return until
