"""Counts per second, of counts that somebody looks at now and then; pure."""

from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 10.0
"""Seconds over which a rate is taken. More make it steadier, and it follows later."""


class Rates:
    """The rates of counts that grow.

    Args:
        seconds: over which a rate is taken, at the least between two looks.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._looks: deque[tuple[float, Mapping[str, int]]] = deque()

    def note(self, at: float, counts: Mapping[str, int]) -> None:
        """Take a look: the counts by name, at a moment of a clock that only goes on."""
        self._looks.append((at, counts))
        while len(self._looks) > 2 and at - self._looks[1][0] >= self._seconds:
            self._looks.popleft()

    def rate(self, name: str) -> float | None:
        """Give a rate; None before the second look, and where a count fell, as after retention."""
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        if ended <= began or name not in first or last.get(name, 0) < first[name]:
            return None
        return (last[name] - first[name]) / (ended - began)
