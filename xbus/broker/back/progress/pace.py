"""Finds out whether a role holds others up; pure."""

from collections import deque

WINDOW_SECONDS = 60.0


class Pace:
    """Remembers for a minute how long one role kept others waiting.

    Args:
        behind_after: if it kept others waiting for this many seconds in that time, it is behind.
    """

    def __init__(self, behind_after: float) -> None:
        self._behind_after = behind_after
        self._waits: deque[tuple[float, float]] = deque()

    def kept_waiting(self, seconds: float, now: float) -> None:
        """Note that others waited for the role.

        Args:
            seconds: for how long.
            now: the end of that time, in monotonic seconds.
        """
        self._waits.append((now, seconds))

    def allowance(self, now: float) -> float:
        """Compute for how many seconds more others wait for the role; 0 if it is behind."""
        while self._waits and self._waits[0][0] <= now - WINDOW_SECONDS:
            self._waits.popleft()
        return max(0.0, self._behind_after - sum(seconds for _, seconds in self._waits))

    def forget(self) -> None:
        """Let the role begin anew."""
        self._waits.clear()
