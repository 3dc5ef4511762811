"""A circuit breaker for each role: it trips when envelope after envelope fails there; pure.

Where one envelope fails at a role it may be to blame itself. Where one after the other does, it is the role: it would
be wrong to use up the attempts of all that comes, and park it. Such a role is probed with one envelope now and then.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from xbus.clock import Clock


@dataclass(slots=True)
class _Breaker:
    since: datetime
    next_probe: float
    """When the next envelope may be tried, in monotonic seconds."""
    probed: set[int] = field(default_factory=set)
    """The positions that were tried: they take turns, as one that is to blame itself must not stand in the way."""


class CircuitBreakers:
    """Counts the envelopes that fail at each role, worker or consumer, for a reason that may pass.

    Args:
        clock: says since when, and when the next probe is due.
        after: so many envelopes that fail in a row, with none going well in between, are the role's own trouble.
        probe_interval: seconds from one probe to the next.
    """

    def __init__(self, clock: Clock, *, after: int, probe_interval: float) -> None:
        self._clock = clock
        self._after = after
        self._interval = probe_interval
        self._failed: defaultdict[int, set[int]] = defaultdict(set)
        self._troubles: dict[int, _Breaker] = {}
        self._over: dict[int, datetime] = {}

    def is_troubled(self, role_id: int) -> bool:
        """Whether a role is in trouble now."""
        return role_id in self._troubles

    def since(self, role_id: int) -> datetime | None:
        """Since when a role is in trouble; None where it is not."""
        trouble = self._troubles.get(role_id)
        return None if trouble is None else trouble.since

    def over_since(self, role_id: int) -> datetime | None:
        """When the last trouble of a role ended; None where it was in none."""
        return self._over.get(role_id)

    def failed(self, role_id: int, position: int) -> bool:
        """Note that an envelope failed at a role; attempts at the same one count as one.

        Returns:
            Whether the role is in trouble from now on.
        """
        if self.is_troubled(role_id):
            return False
        failed = self._failed[role_id]
        failed.add(position)
        if len(failed) < self._after:
            return False
        del self._failed[role_id]
        self._troubles[role_id] = _Breaker(self._clock.now(), self._clock.monotonic() + self._interval)
        return True

    def went_well(self, role_id: int) -> bool:
        """Note that something went well at a role.

        Returns:
            Whether its trouble is over with that.
        """
        self._failed.pop(role_id, None)
        if self._troubles.pop(role_id, None) is None:
            return False
        self._over[role_id] = self._clock.now()
        return True

    def came_back(self, role_id: int) -> None:
        """Note that a role has another recipient: if that is in trouble too shows at once."""
        if self.is_troubled(role_id):
            self._troubles[role_id].next_probe = self._clock.monotonic()

    def seconds_to_probe(self, role_id: int) -> float:
        """For how long a role in trouble is to be left alone; 0 where it may be probed now."""
        return max(0.0, self._troubles[role_id].next_probe - self._clock.monotonic())

    def probe(self, role_id: int, positions: Sequence[int]) -> int:
        """Begin to probe a role with one of these envelopes, at least one: the lowest of those whose turn it is."""
        trouble = self._troubles[role_id]
        fresh = set(positions) - trouble.probed
        if not fresh:
            trouble.probed.clear()
            fresh = set(positions)
        chosen = min(fresh)
        trouble.probed.add(chosen)
        self.begin_probe(role_id)
        return chosen

    def begin_probe(self, role_id: int) -> None:
        """Note that a role is being probed."""
        self._troubles[role_id].next_probe = self._clock.monotonic() + self._interval
