"""The registry of recipients: who is registered now."""

import asyncio
import logging

from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.role_events import RoleEvents
from xbus.broker.back.recipients.slots import AnyOf, Slots
from xbus.clock import Clock

log = logging.getLogger(__name__)


MOST_REMEMBERED = 1000
"""So many of those who left are remembered: one may wake up and ask what became of its place."""


class Registry:
    """The recipients by role; each role has one at the most, the newest.

    Args:
        slots: give out the capacity of the recipients.
        clock: measures for how long a service has been absent.
        events: publish all that come and go.
    """

    def __init__(self, slots: Slots[RecipientProxy], clock: Clock, events: RoleEvents) -> None:
        self._slots = slots
        self._clock = clock
        self._events = events
        self._recipients: dict[int, RecipientProxy] = {}
        self._leaving: dict[int, RecipientProxy] = {}
        self._left: dict[bytes, int] = {}
        self._began = clock.monotonic()
        self._last_seen: dict[str, float] = {}
        self._arrival = asyncio.Event()

    def all(self) -> list[RecipientProxy]:
        """List every recipient that serves a role now."""
        return list(self._recipients.values())

    def connected(self) -> list[RecipientProxy]:
        """List the same, and those that are leaving and finish their work first."""
        return [*self._recipients.values(), *self._leaving.values()]

    def get(self, role_id: int) -> RecipientProxy | None:
        """Give the recipient that serves a role now."""
        return self._recipients.get(role_id)

    def connected_for(self, role_id: int) -> RecipientProxy | None:
        """Give the same, or the one that is leaving."""
        return self._recipients.get(role_id) or self._leaving.get(role_id)

    def add(self, recipient: RecipientProxy) -> None:
        """Let a recipient serve its role; it replaces the one that did so before."""
        older = self.connected_for(recipient.role.id)
        if older is not None:
            self.remove(older, "a newer recipient has registered for its role")
        self._recipients[recipient.role.id] = recipient
        # An ordered role can't take the next envelope before the outcome of the one before is known.
        capacity = 1 if recipient.role.ordered else recipient.abilities.envelopes
        self._slots.add(recipient, recipient.role.service, capacity)
        log.info("recipient registered", extra={"action": "registered", "role": recipient.role.login})
        self._events.arrived.publish(recipient)
        self._arrival.set()
        self._arrival = asyncio.Event()

    def remove(self, recipient: RecipientProxy, reason: str) -> None:
        """Take a recipient off the list and call it no more; one that is not on it changes nothing."""
        if self.connected_for(recipient.role.id) is not recipient:
            return
        is_serving = self._leaving.pop(recipient.role.id, None) is None
        if is_serving:
            del self._recipients[recipient.role.id]
        self._left[recipient.token_hash] = recipient.role.id
        if len(self._left) > MOST_REMEMBERED:
            del self._left[next(iter(self._left))]
        self._slots.remove(recipient)
        recipient.close()
        log.info("recipient left: %s", reason, extra={"action": "unregistered", "role": recipient.role.login})
        if is_serving:
            self._tell_left(recipient)
        self._events.gone.publish(recipient)

    def leave(self, recipient: RecipientProxy) -> None:
        """Give a leaving recipient nothing more; until it goes it may end its work.

        One that does not serve its role, as it is only introduced or was replaced, changes nothing.
        """
        if self._recipients.get(recipient.role.id) is not recipient:
            return
        self._leaving[recipient.role.id] = self._recipients.pop(recipient.role.id)
        self._slots.remove(recipient)
        log.info("recipient is leaving", extra={"action": "leaving", "role": recipient.role.login})
        self._tell_left(recipient)

    def _tell_left(self, recipient: RecipientProxy) -> None:
        self._last_seen[recipient.role.service] = self._clock.monotonic()
        self._events.left.publish(recipient)

    def is_displaced(self, token_hash: bytes) -> bool:
        """Check whether the recipient of this session left, and another one serves its role now."""
        role_id = self._left.get(token_hash)
        successor = None if role_id is None else self._recipients.get(role_id)
        return successor is not None and successor.token_hash != token_hash

    def is_served(self, service: str) -> bool:
        """Check whether any role of a service is registered."""
        return self._slots.is_present(AnyOf(service))

    def absent_for(self, service: str) -> float:
        """Compute for how many seconds no role of a service has been registered."""
        if self.is_served(service):
            return 0.0
        return self._clock.monotonic() - self._last_seen.get(service, self._began)

    async def arrival(self, seconds: float) -> None:
        """Wait for the next recipient, ``seconds`` at the longest."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrival.wait()
        except TimeoutError:
            return
