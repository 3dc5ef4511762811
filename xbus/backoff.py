"""Delays between tries that grow while nothing helps, and how long to insist. Pure: whoever tries does the waiting."""

from collections.abc import Callable


class Backoff:
    """Each delay is twice as long as the one before.

    Args:
        first: the first delay, in seconds. A shorter one tries again sooner and costs more tries.
        longest: no delay is longer than this, in seconds.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """Count one more failure, and give the seconds to wait."""
        delay = self._next
        self._next = min(2 * delay, self._longest)
        return delay

    def reset(self) -> None:
        """Begin anew: something went well."""
        self._next = self._first


class Patience:
    """Measures a row of failures.

    Args:
        seconds: how long the row may last, counted from its beginning, or else from its first failure.
        backoff: gives the delays between tries.
        now: the time in seconds, from any start.
    """

    def __init__(self, seconds: float, backoff: Backoff, now: Callable[[], float]) -> None:
        self.seconds = seconds
        self._backoff = backoff
        self._now = now
        self._until: float | None = None

    @property
    def left(self) -> float:
        """The seconds that are left of the row; all of them while none has begun."""
        return self.seconds if self._until is None else max(0.0, self._until - self._now())

    def begin(self, began: float | None = None) -> None:
        """Begin a row, unless one has begun: somebody waits for a success.

        Args:
            began: since when; None for now.
        """
        if self._until is None:
            self._until = (self._now() if began is None else began) + self.seconds

    def succeeded(self) -> None:
        """Note a success: the next failure begins a new row."""
        self._until = None
        self._backoff.reset()

    def failed(self) -> float | None:
        """Count one more failure, and give the seconds until the next try, or None when the time is over."""
        now = self._now()
        if self._until is None:
            self._until = now + self.seconds
        if now >= self._until:
            return None
        return min(self._backoff.next(), self._until - now)
