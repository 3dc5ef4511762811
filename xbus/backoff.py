"""Delays between tries that grow while nothing helps. Pure: whoever tries does the waiting."""


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
        """How many seconds to wait now, after one more failure."""
        delay = self._next
        self._next = min(2 * delay, self._longest)
        return delay

    def reset(self) -> None:
        """Begin anew: something went well."""
        self._next = self._first
