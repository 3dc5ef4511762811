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
        """It is alive: earlier misses count no more."""
        self._missed = 0

    def missed(self) -> None:
        """It did not answer in time."""
        self._missed += 1

    @property
    def is_silent(self) -> bool:
        """Whether it did not answer the last time."""
        return self._missed > 0

    @property
    def is_lost(self) -> bool:
        """Whether it is to be given up."""
        return self._missed >= self._misses
