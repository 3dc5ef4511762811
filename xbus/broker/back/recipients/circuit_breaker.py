"""A circuit breaker for each role: it trips when envelope after envelope fails there.

Where one envelope fails at a role it may be to blame itself. Where one after the other does, it is the role: it would
be wrong to use up the attempts of all that comes, and park it. Such a role is probed with one envelope now and then.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.served import RoleEvents, ServedRole
from xbus.broker.back.recipients.slots import Slots
from xbus.clock import Clock

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Trouble:
    since: datetime
    next_probe: float
    """The moment of the next probe, in monotonic seconds."""
    probed: set[int] = field(default_factory=set)
    """The positions of earlier probes. They take turns, because a faulty envelope must not block the role's
    recovery."""


class CircuitBreaker:
    """Counts the envelopes that fail at one role, worker or consumer, for a reason that may pass; pure.

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


class BreakerProbes:
    """Notes successes and failures at recipients, and decides who may be probed.

    A consumer in trouble gets nothing in its turn, and one of its rows now and then. A worker in trouble is not
    acquired, as if it were away; now and then it gets one event.

    Args:
        breakers: know the roles in trouble.
        registry: knows who is registered.
        slots: know the free recipients.
        events: bring recipients that arrive, and publish those that get into trouble or out of it.
    """

    def __init__(
        self, breakers: CircuitBreakers, registry: Registry, slots: Slots[RecipientProxy], events: RoleEvents
    ) -> None:
        self._breakers = breakers
        self._registry = registry
        self._slots = slots
        self._events = events
        self._logins: dict[int, str] = {}

    def joined(self, recipient: RecipientProxy) -> None:
        """Note a recipient that has come; its first envelope shows whether its role's trouble came with it."""
        self._breakers[recipient.role.id].came_back()
        if recipient.role.worker and self.is_troubled(recipient.role.id):
            self._slots.limit(recipient, 0)

    def resumed(self, served: ServedRole) -> None:
        """Note a role that was paused; whether it is in trouble may have changed meanwhile."""
        for instance in served.instances:
            self.joined(instance)

    def is_troubled(self, role_id: int) -> bool:
        """Check whether a role is in trouble."""
        return self._breakers.is_troubled(role_id)

    # -- what happens at recipients --------------------------------------------------------------------------------

    def failed(self, role_id: int, position: int) -> None:
        """Note that an envelope failed at a role for a reason that may pass."""
        recipient = self._registry.get(role_id)
        if self._breakers[role_id].failed(position):
            self._logins[role_id] = str(role_id) if recipient is None else recipient.role.login
            log.warning("recipient in trouble", extra={"action": "troubled", "role": self._logins[role_id]})
            if recipient is not None and not recipient.role.worker:
                self._events.tripped.publish(recipient)
        if recipient is not None and recipient.role.worker and self.is_troubled(role_id):
            for instance in recipient.instances:
                self._slots.limit(instance, 0)

    def went_well(self, role_id: int) -> None:
        """Note the success of an envelope at a role."""
        if not self._breakers[role_id].went_well():
            return
        login = self._logins.pop(role_id)
        log.info("recipient no longer in trouble", extra={"action": "trouble_over", "role": login})
        recipient = self._registry.get(role_id)
        if recipient is None:
            return
        for instance in recipient.instances if recipient.role.worker else ():
            self._slots.limit(instance, instance.abilities.envelopes)
        self._events.recovered.publish(recipient)

    def retain(self, role_ids: Collection[int]) -> None:
        """Know only of these roles: nothing is owed to others any more."""
        for role_id in self._logins.keys() - set(role_ids):
            self.went_well(role_id)

    # -- probes ----------------------------------------------------------------------------------------------------

    def is_time(self, role_id: int) -> bool:
        """Check whether a role in trouble may be probed now."""
        return self._breakers[role_id].seconds_to_probe() == 0

    def served(self) -> list[str]:
        """List the worker services that may be called now, with those that may be probed."""
        workers = [recipient.role for recipient in self._registry.all() if recipient.role.worker]
        return sorted({role.service for role in workers if not self.is_troubled(role.id) or self.is_time(role.id)})

    def admits(self, service: str) -> bool:
        """Check whether a worker of a service may be acquired now; one in trouble may if a probe is due."""
        if self._registry.is_served(service):
            return True
        for worker in self._registry.all():
            role = worker.role
            if role.worker and role.service == service and self.is_troubled(role.id) and self.is_time(role.id):
                self._breakers[role.id].begin_probe()
                # The one that came last: where it is in order again, a newer program mended that.
                self._slots.limit(worker.instances[-1], 1)
                return True
        return False

    def seconds_to_probe(self, role_id: int) -> float | None:
        """Compute how long to leave a consumer, or a worker that it needs, alone; None if neither must be."""
        troubled = [
            recipient.role.id
            for recipient in self._registry.all()
            if (recipient.role.worker or recipient.role.id == role_id) and self.is_troubled(recipient.role.id)
        ]
        waits = (self._breakers[each].seconds_to_probe() for each in troubled)
        return min(filter(None, waits), default=None)
