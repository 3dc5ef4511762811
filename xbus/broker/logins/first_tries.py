"""The logins whose passwords are checked at the broker's own priority; pure.

A password takes some 50 ms of a processor, and a crowd of logins must not slow those down who are logged in: so it is
checked at a low priority. Where other programs compute, such a check takes longer than its caller waits, and nobody
could log in at all. So the first try of a login from an address has the priority of the broker.
"""

from collections import Counter, deque

from xbus.clock import Clock

FORGOTTEN_SECONDS = 60.0
"""Seconds without a try until the next one of a login from an address is a first one again. Less favours a program
that logs in again and again."""

MOST_OF_ADDRESS = 8
"""First tries of one address within that time. More let a larger fleet behind one address in while other programs
compute, and let an address that invents logins take more of the processor."""


class FirstTries:
    """Remembers tries of logins from addresses.

    Args:
        clock: measures their age.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: dict[tuple[str, str], float] = {}
        self._first: deque[tuple[float, str]] = deque()
        self._of_address: Counter[str] = Counter()

    def is_first(self, login: str, address: str) -> bool:
        """Note a try, and check whether it is a first one."""
        now = self._clock.monotonic()
        self._forget(now - FORGOTTEN_SECONDS)
        is_known = self._tries.pop((login, address), None) is not None
        if not is_known and self._of_address[address] >= MOST_OF_ADDRESS:
            return False
        # The newest is the last; no address has more than its first ones here.
        self._tries[login, address] = now
        if not is_known:
            self._first.append((now, address))
            self._of_address[address] += 1
        return not is_known

    def _forget(self, before: float) -> None:
        while self._first and self._first[0][0] <= before:
            _, address = self._first.popleft()
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
        while self._tries and (oldest := next(iter(self._tries))) and self._tries[oldest] <= before:
            del self._tries[oldest]
