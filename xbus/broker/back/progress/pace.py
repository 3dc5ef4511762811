"""Finds the roles that hold others up; pure."""

from collections import defaultdict, deque

WINDOW_SECONDS = 60.0


class Pace:
    """Remembers for a minute how long each role kept others waiting.

    Args:
        behind_after: a role that kept others waiting for this many seconds in that time is behind.
    """

    def __init__(self, behind_after: float) -> None:
        self._behind_after = behind_after
        self._waits: defaultdict[int, deque[tuple[float, float]]] = defaultdict(deque)

    def kept_waiting(self, role_id: int, seconds: float, now: float) -> None:
        """Note that others waited for a role.

        Args:
            seconds: for how long.
            now: the end of that time, in monotonic seconds.
        """
        self._waits[role_id].append((now, seconds))

    def allowance(self, role_id: int, now: float) -> float:
        """Compute for how many seconds more others wait for a role; 0 if it is behind."""
        waits = self._waits[role_id]
        while waits and waits[0][0] <= now - WINDOW_SECONDS:
            waits.popleft()
        return max(0.0, self._behind_after - sum(seconds for _, seconds in waits))

    def forget(self, role_id: int) -> None:
        """Let a role begin anew."""
        self._waits.pop(role_id, None)
