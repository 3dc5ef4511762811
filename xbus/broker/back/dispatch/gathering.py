"""Gathering the consumers of a run: all at once, and without those that hold the others up."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence

from xbus.broker.back.progress import ConsumerRole, ConsumerRoles
from xbus.broker.back.recipients import Absent, RecipientProxy, RoleEvents, ServedRole, Slots, This
from xbus.clock import Clock

log = logging.getLogger(__name__)


class _HeldUp(Exception):
    """Some recipients kept others waiting for too long."""

    def __init__(self, by: Sequence[ServedRole]) -> None:
        super().__init__(f"held up by {[recipient.role.login for recipient in by]}")
        self.by = by


class ConsumerGathering:
    """Takes slots of consumers.

    Args:
        slots: know the free recipients.
        roles: their pace says who delayed others lately.
        clock: measures the delays.
        events: publish that a recipient was left out because it delays the others.
    """

    def __init__(self, slots: Slots[RecipientProxy], roles: ConsumerRoles, clock: Clock, events: RoleEvents) -> None:
        self._slots = slots
        self._roles = roles
        self._clock = clock
        self._events = events
        self.awaited: dict[ServedRole, asyncio.Timeout] = {}
        """The recipients for which a lane waits, though it need not: each with the end of its patience."""

    async def take(
        self, recipients: Sequence[ServedRole], may_go: Callable[[ServedRole], bool]
    ) -> list[RecipientProxy]:
        """Wait for a free slot of each consumer, and take them; leave out consumers that go away meanwhile.

        Args:
            recipients: who is wanted.
            may_go: whether a recipient may still go; asked again after each wait.

        Returns:
            For each that goes the instance whose slot was taken; give each back.
        """
        left_behind: set[ServedRole] = set()
        while going := [recipient for recipient in recipients if may_go(recipient) and recipient not in left_behind]:
            try:
                taken = await self._take_all(going)
            except Absent:
                is_absent = any(not self._slots.is_present(This(recipient)) for recipient in going)
                if is_absent and all(may_go(recipient) for recipient in going):
                    # Its programs are paused while the role is served: to ask again would change nothing.
                    await self._slots.changed()
                continue
            except _HeldUp as held_up:
                left_behind.update(held_up.by)
                for recipient in held_up.by:
                    self.leave_behind(recipient)
                continue
            if all(may_go(recipient) for recipient in going):
                return taken
            for instance in taken:
                self._slots.free(instance)
        return []

    def take_for(self, slots: Mapping[RecipientProxy, int], envelopes: int) -> dict[RecipientProxy, int]:
        """Take a slot for each of some envelopes, as far as instances have free ones now.

        Args:
            slots: those that are taken already.

        Returns:
            How many of each; give each back.
        """
        found = {instance: min(taken, envelopes) for instance, taken in slots.items()}
        return {each: taken + self._slots.take_further(each, envelopes - taken) for each, taken in found.items()}

    def may_prepare(self, instance: RecipientProxy, slots: int) -> int:
        """Count the envelopes that an instance may keep open for a decision, beside what is open there already.

        A role that wants order has but one slot, whatever its program allows.

        Args:
            slots: how many of its slots are taken for them.
        """
        further = instance.abilities.prepares - instance.abilities.envelopes
        return max(1, slots + self._slots.spare(instance) + further)

    async def others_wait(
        self, recipient: ServedRole, ready: Coroutine[object, object, None], *, shares_nothing: bool = False
    ) -> bool:
        """Let others wait until a recipient takes more, though not for ever.

        Args:
            shares_nothing: whether the others share no work with it: they wait only while each has something to do.

        Returns:
            Whether it does; else it goes on at its own pace.
        """
        pace = self._roles[recipient.role.id].pace
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(pace.allowance(began)) as patience:
                if shares_nothing:
                    self.awaited[recipient] = patience
                    lane = self._roles[recipient.role.id].lane
                    for other in () if lane is None else lane.recipients():
                        self.note_idle(self._roles[other.role.id])
                await ready
        except TimeoutError:
            self.leave_behind(recipient)
            return False
        finally:
            self.awaited.pop(recipient, None)
            now = self._clock.monotonic()
            pace.kept_waiting(now - began, now)
        return True

    def note_idle(self, role: ConsumerRole) -> None:
        """Let the lane of a role that has nothing to do wait no longer for a recipient that shares nothing."""
        if role.in_flight.positions:
            return
        for recipient, patience in self.awaited.items():
            awaited = self._roles[recipient.role.id]
            if awaited is not role and awaited.lane is role.lane and not patience.expired():
                patience.reschedule(asyncio.get_running_loop().time())

    def note_run(self, busy: Mapping[RecipientProxy, float]) -> None:
        """Learn from a run who kept the others waiting in it: those that worked longer than the fastest.

        Args:
            busy: for how many seconds each of its consumers had something to do.
        """
        now = self._clock.monotonic()
        fastest = min(busy.values())
        for recipient, seconds in busy.items():
            if seconds > fastest:
                pace = self._roles[recipient.role.id].pace
                pace.kept_waiting(seconds - fastest, now)
                served = self._roles[recipient.role.id].served
                if served is not None and not pace.allowance(now):
                    self.leave_behind(served)

    def caught_up(self, recipient: ServedRole) -> None:
        """Let a recipient that goes on together with the others again begin anew."""
        log.info("recipient has caught up", extra={"action": "caught_up", "role": recipient.role.login})
        self._roles[recipient.role.id].pace.forget()

    def leave_behind(self, recipient: ServedRole) -> None:
        """Let a recipient go on at its own pace."""
        log.info("recipient is behind", extra={"action": "behind", "role": recipient.role.login})
        self._events.slow.publish(recipient)

    async def _take_all(self, recipients: Sequence[ServedRole]) -> list[RecipientProxy]:
        """Take a slot of each; those that are free wait for the others, though not for ever.

        Raises:
            _HeldUp: some kept the others waiting for too long.
            Absent: one has gone.
        """
        wants = [This(recipient) for recipient in recipients]
        await self._slots.any_free(recipients)
        slow = [recipient for recipient in recipients if not self._slots.is_free(recipient)]
        if not slow or len(recipients) == 1:
            return await self._slots.take(wants)
        paces = [self._roles[recipient.role.id].pace for recipient in slow]
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(min(pace.allowance(began) for pace in paces)):
                return await self._slots.take(wants)
        except TimeoutError:
            raise _HeldUp([recipient for recipient in slow if not self._slots.is_free(recipient)]) from None
        finally:
            now = self._clock.monotonic()
            for pace in paces:
                pace.kept_waiting(now - began, now)
