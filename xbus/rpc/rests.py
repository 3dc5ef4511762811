"""Callers that flood rest behind each piece of their work, while others call that do not.

A group commit answers all calls together that came before it, so short calls wait for the long work beside them. A rest
in proportion to that work leaves half of the time to them, however fast the machine and its disk are. One that sends
large calls one by one never rests: it waits as the others do.
"""

import math
import time
from collections.abc import Callable, Hashable

LARGE_BYTES = 48 * 1024
"""A call of more bytes is long work. With more of them large calls delay others, with fewer more callers rest."""

CALLING_SECONDS = 0.05
"""Seconds for which somebody counts as calling behind a short call. More protect callers that call seldom, and slow
those that flood down for them."""

LONG_SECONDS = 1.0
"""Seconds for which somebody counts as one with long work behind it. More keep callers unprotected that have none any
more. With fewer the short calls between long ones count as those of somebody else."""

MOST_SECONDS = 1.0
"""The longest rest. Work that takes longer waits for something else, such as a journal that is away."""

_MOST_FOLD = 3.0
"""So many times as long as a call of 2 MiB and more has taken its caller rests: such bytes are read before the call and
delivered behind it. More slow large calls down, fewer leave less to others."""

_BYTES_OF_A_FOLD = 1024 * 1024
"""The bytes of a call that make its rest longer by the time that it has taken, up to ``_MOST_FOLD``."""


class Rests:
    """Says how long callers rest behind their long work.

    Args:
        now: the time in seconds.

    Attributes:
        long: the callers with long work, and until when that counts.
        last: the caller of the last short call.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.long: dict[Hashable, float] = {}
        self.last: Hashable = None
        self._floods: dict[Hashable, float] = {}
        """The callers that rest, and until when that counts."""
        self._until = -math.inf
        """The time up to which somebody counts as calling who has no long work."""

    @property
    def are_due(self) -> bool:
        """Check whether somebody calls who has no long work."""
        return self.now() < self._until

    def note_long(self, *whose: Hashable) -> None:
        """Note that somebody has long work, by all names of it."""
        now = self.now()
        if whose[0] not in self.long:
            self.long = {each: until for each, until in self.long.items() if now < until}
        self.long |= dict.fromkeys(whose, now + LONG_SECONDS)

    def note_short(self, who: Hashable, other: Hashable) -> None:
        """Note a short call. It need not be noted where ``long`` is empty and the caller is ``last``.

        Args:
            other: another name under which the caller may have long work. Nobody rests for short calls of its own.
        """
        now = self.now()
        if self.long and max(self.long.get(who, now), self.long.get(other, now)) > now:
            return
        if self.long or self.last not in (None, who):
            self._until = now + CALLING_SECONDS
        self.last = who

    def seconds(self, who: Hashable, began: float, size: float) -> float:
        """Give the seconds for which somebody rests behind a piece of work, of which more waits.

        All callers that flood share the half of the time that is not for the others.

        Args:
            began: the time at which the piece did; it has just ended.
            size: its bytes.
        """
        now = self.now()
        if now >= self._until:
            return 0.0
        self._floods = {each: until for each, until in self._floods.items() if now < until}
        self._floods[who] = now + LONG_SECONDS
        fold = min(1 + size / _BYTES_OF_A_FOLD, _MOST_FOLD)
        return min((now - began) * fold * len(self._floods), MOST_SECONDS)
