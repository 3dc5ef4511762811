"""The pace of what a command sends, where its operator wants it to be gentle."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from xbus.clock import Clock

T = TypeVar("T")


class SendingRate:
    """Hands out what is to be sent, in portions of a second, each when its time has come.

    Args:
        per_second: how many at the most; None for no limit.
        clock: measures it.
        sleep: waits so many seconds.
    """

    def __init__(self, per_second: float | None, clock: Clock, sleep: Callable[[float], object] = time.sleep) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._began = clock.monotonic()
        self._handed_out = 0

    def portions(self, all_of_them: Sequence[T]) -> Iterator[Sequence[T]]:
        """Iterate over portions, and wait before each as the pace demands; all at once without one."""
        if self._per_second is None:
            yield all_of_them
            return
        size = max(1, int(self._per_second))
        for start in range(0, len(all_of_them), size):
            wait = self._began + self._handed_out / self._per_second - self._clock.monotonic()
            if wait > 0:
                self._sleep(wait)
            portion = all_of_them[start : start + size]
            self._handed_out += len(portion)
            yield portion
