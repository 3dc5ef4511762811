"""When a recipient counts as lost: pure."""


class Liveness:
    """Counts the pings in a row that a recipient did not answer.

    Args:
        misses: this many make it lost.
    """

    def __init__(self, misses: int) -> None:
        self._misses = misses
        self._missed = 0

    def answered(self) -> None:
        """Note an answer: earlier misses count no more."""
        self._missed = 0

    def missed(self) -> None:
        """Note that no answer came in time."""
        self._missed += 1

    @property
    def is_silent(self) -> bool:
        """True if the last answer did not come."""
        return self._missed > 0

    @property
    def is_lost(self) -> bool:
        """True once it counts as lost."""
        return self._missed >= self._misses
