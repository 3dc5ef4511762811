"""A circuit breaker for each role: it trips when envelope after envelope fails there; pure.

Where one envelope fails at a role it may be to blame itself. Where one after the other does, it is the role: it would
be wrong to use up the attempts of all that comes, and park it. Such a role is probed with one envelope now and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from xbus.clock import Clock


@dataclass(slots=True)
class _Trouble:
    since: datetime
    next_probe: float
    """The moment of the next probe, in monotonic seconds."""
    probed: set[int] = field(default_factory=set)
    """The positions of earlier probes. They take turns, because a faulty envelope must not block the role's
    recovery."""


class CircuitBreaker:
    """Counts the envelopes that fail at one role, worker or consumer, for a reason that may pass.

    Args:
        clock: says since when, and when the next probe is due.
        after: so many envelopes that fail in a row, with none going well in between, are the role's own trouble.
        probe_interval: seconds from one probe to the next.
    """

    def __init__(self, clock: Clock, *, after: int, probe_interval: float) -> None:
        self._clock = clock
        self._after = after
        self._interval = probe_interval
        self._failed: set[int] = set()
        self._trouble: _Trouble | None = None
        self.is_clean = True
        """Whether nothing has failed since the last success: another success changes nothing."""
        self.over_since: datetime | None = None
        """When the last trouble ended; None without any."""

    @property
    def is_tripped(self) -> bool:
        """True while the role is in trouble."""
        return self._trouble is not None

    @property
    def since(self) -> datetime | None:
        """Since when the role is in trouble; None where it is not."""
        return None if self._trouble is None else self._trouble.since

    def failed(self, position: int) -> bool:
        """Note that an envelope failed; attempts at the same one count as one.

        Returns:
            Whether the role is in trouble from now on.
        """
        if self._trouble is not None:
            return False
        self.is_clean = False
        self._failed.add(position)
        if len(self._failed) < self._after:
            return False
        self._failed.clear()
        self._trouble = _Trouble(self._clock.now(), self._clock.monotonic() + self._interval)
        return True

    def went_well(self) -> bool:
        """Note a success.

        Returns:
            Whether the trouble is over with that.
        """
        self.is_clean = True
        self._failed.clear()
        if self._trouble is None:
            return False
        self._trouble = None
        self.over_since = self._clock.now()
        return True

    def came_back(self) -> None:
        """Note that the role has another recipient: if that is in trouble too shows at once."""
        if self._trouble is not None:
            self._trouble.next_probe = self._clock.monotonic()

    def seconds_to_probe(self) -> float:
        """Compute how many seconds to leave the role alone; 0 if it may be probed, or is in no trouble."""
        return 0.0 if self._trouble is None else max(0.0, self._trouble.next_probe - self._clock.monotonic())

    def probe(self, positions: Sequence[int]) -> int:
        """Begin to probe the role in trouble with one of these envelopes: the lowest whose turn it is."""
        assert self._trouble is not None, "only a role in trouble is probed"
        fresh = set(positions) - self._trouble.probed
        if not fresh:
            self._trouble.probed.clear()
            fresh = set(positions)
        chosen = min(fresh)
        self._trouble.probed.add(chosen)
        self.begin_probe()
        return chosen

    def begin_probe(self) -> None:
        """Note that the role is being probed."""
        if self._trouble is not None:
            self._trouble.next_probe = self._clock.monotonic() + self._interval


class CircuitBreakers(dict[int, CircuitBreaker]):
    """The breakers of all roles, by their ids; see ``CircuitBreaker`` for the arguments."""

    def __init__(self, clock: Clock, *, after: int, probe_interval: float) -> None:
        super().__init__()
        self._clock = clock
        self._after = after
        self._interval = probe_interval

    def __missing__(self, role_id: int) -> CircuitBreaker:
        breaker = CircuitBreaker(self._clock, after=self._after, probe_interval=self._interval)
        self[role_id] = breaker
        return breaker

    def is_troubled(self, role_id: int) -> bool:
        """Check whether a role is in trouble now."""
        return self[role_id].is_tripped
