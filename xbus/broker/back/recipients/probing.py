"""Holds roles in trouble back, and lets one envelope through to each of them now and then.

A consumer in trouble gets nothing in its turn, and one of its rows now and then. A worker in trouble is not acquired,
as if it were away; now and then it gets one event.
"""

import logging
from collections.abc import Collection

from xbus.broker.back.recipients.circuit_breaker import CircuitBreakers
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.role_events import RoleEvents
from xbus.broker.back.recipients.served import ServedRole
from xbus.broker.back.recipients.slots import Slots

log = logging.getLogger(__name__)


class BreakerProbes:
    """Notes successes and failures at recipients, and decides who may be probed.

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
