"""Finds out whether a role holds others up; pure."""

from collections import deque

WINDOW_SECONDS = 60.0

MERGED_SECONDS = 0.1
"""Seconds whose waits are one entry. More keeps fewer entries, and forgets that much too early."""


class Pace:
    """Remembers for a minute how long one role kept others waiting.

    Args:
        behind_after: if it kept others waiting for this many seconds in that time, it is behind.
    """

    def __init__(self, behind_after: float) -> None:
        self._behind_after = behind_after
        self._waits: deque[tuple[float, float]] = deque()
        self._waited = 0.0
        """The sum of all entries, as there may be hundreds and each run asks several times."""

    def kept_waiting(self, seconds: float, now: float) -> None:
        """Note that others waited for the role.

        Args:
            seconds: for how long.
            now: the end of that time, in monotonic seconds.
        """
        since, merged = self._waits[-1] if self._waits else (-WINDOW_SECONDS, 0.0)
        if 0 <= now - since < MERGED_SECONDS:
            self._waits[-1] = (since, merged + seconds)
        else:
            self._waits.append((now, seconds))
        self._waited += seconds

    def allowance(self, now: float) -> float:
        """Compute for how many seconds more others wait for the role; 0 if it is behind."""
        while self._waits and self._waits[0][0] <= now - WINDOW_SECONDS:
            self._waited -= self._waits.popleft()[1]
        if not self._waits:
            self._waited = 0.0
        return max(0.0, self._behind_after - self._waited)

    def forget(self) -> None:
        """Let the role begin anew."""
        self._waits.clear()
        self._waited = 0.0
