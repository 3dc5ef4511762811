"""The registry of recipients: which programs serve which role now, which finish their work, and which stand by."""

import asyncio
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.served import RoleEvents, ServedRole
from xbus.broker.back.recipients.slots import AnyOf, Slots
from xbus.broker.journal.log.catalog import RoleEntry
from xbus.clock import Clock

log = logging.getLogger(__name__)


MOST_REMEMBERED = 1000
"""So many of those who left are remembered: one may wake up and ask what became of its place."""

DISPLACE_SECONDS = 1.0
"""Seconds that the programs of a full role have to show that they live. Fewer may displace one that is only busy."""


@dataclass(slots=True)
class _Programs:
    """The programs that are registered for one role.

    Args:
        served: those that serve it; None while none does.
        leaving: those that get nothing more and finish their work, the one first that left first.
        standing_by: those that wait for a place, the one first that came first.
        ending: what was served until all were leaving, and has not gone yet.
        is_paused: whether nothing begins with those that serve it.
    """

    served: ServedRole | None = None
    leaving: list[RecipientProxy] = field(default_factory=list)
    standing_by: list[RecipientProxy] = field(default_factory=list)
    ending: ServedRole | None = None
    is_paused: bool = False

    def __iter__(self) -> Iterator[RecipientProxy]:
        return iter([*self.serving, *self.leaving, *self.standing_by])

    @property
    def serving(self) -> list[RecipientProxy]:
        return [] if self.served is None else self.served.instances

    @property
    def in_place(self) -> list[RecipientProxy]:
        """The programs that take one of the role's places, leaving ones first, then in the order of their coming."""
        return [*self.leaving, *self.serving]


class Registry:
    """The recipients by role. A role has as many programs as it has ``instances``, the newest; further ones stand by.

    Args:
        slots: give out the capacity of the recipients.
        clock: measures for how long a service has been absent.
        events: publish all that come and go.
    """

    def __init__(self, slots: Slots[RecipientProxy], clock: Clock, events: RoleEvents) -> None:
        self._slots = slots
        self._clock = clock
        self._events = events
        self._programs: dict[int, _Programs] = {}
        self._left: dict[bytes, int] = {}
        self._began = clock.monotonic()
        self._last_seen: dict[str, float] = {}
        self._arrival = asyncio.Event()
        self._is_stopping = False

    # -- who is there ----------------------------------------------------------------------------------------------

    def all(self) -> list[ServedRole]:
        """List every role that is served now, and not paused."""
        every = self._programs.values()
        return [programs.served for programs in every if programs.served is not None and not programs.is_paused]

    def get(self, role_id: int) -> ServedRole | None:
        """Give a role as it is served now; None while nobody serves it, or it is paused."""
        programs = self._programs.get(role_id)
        return None if programs is None or programs.is_paused else programs.served

    def serving(self, role_id: int) -> list[RecipientProxy]:
        """List the programs that serve a role now, or would if it was not paused."""
        programs = self._programs.get(role_id)
        return [] if programs is None else list(programs.serving)

    def connected(self, role_id: int | None = None) -> list[RecipientProxy]:
        """List all programs that are registered, for one role or for all: also those that are leaving or stand by."""
        if role_id is not None:
            return list(self._programs.get(role_id, ()))
        return [recipient for programs in self._programs.values() for recipient in programs]

    def find(self, role_id: int, token_hash: bytes) -> RecipientProxy | None:
        """Give the program that registered for a role by a session."""
        return next((each for each in self._programs.get(role_id, ()) if each.token_hash == token_hash), None)

    def is_connected(self, recipient: RecipientProxy) -> bool:
        """Check whether a program is registered still."""
        return recipient in self.connected(recipient.role.id)

    def is_serving(self, recipient: object, role_id: int) -> bool:
        """Check whether a program serves a role, or still serves it as at the last question."""
        served = self.get(role_id)
        return served is not None and (served is recipient or recipient in served.instances)

    def is_standing_by(self, recipient: RecipientProxy) -> bool:
        """Check whether a program waits for a place."""
        programs = self._programs.get(recipient.role.id)
        return programs is not None and recipient in programs.standing_by

    def has_place(self, role: RoleEntry) -> bool:
        """Check whether one more program may register for a role without displacing another."""
        programs = self._programs.get(role.id)
        return role.standby or programs is None or len(programs.in_place) < role.instances

    # -- who comes -------------------------------------------------------------------------------------------------

    def add(self, recipient: RecipientProxy, silent: Collection[RecipientProxy] = ()) -> list[RecipientProxy]:
        """Let a program serve its role, or stand by until one that does is lost.

        Where the role is full and nobody may stand by, it takes the place of one that is leaving, or is silent, or came
        first.

        Args:
            silent: those that do not answer now.

        Returns:
            The programs that it displaced.
        """
        programs = self._programs.setdefault(recipient.role.id, _Programs())
        keeps_place = self._remove_former(programs, recipient)
        if recipient.role.standby and not keeps_place and not self._has_room(programs, recipient.role):
            programs.standing_by.append(recipient)
            log.info("recipient stands by", extra={"action": "standing_by", "role": recipient.role.login})
            return []
        first = sorted(programs.in_place, key=lambda each: each not in programs.leaving and each not in silent)
        displaced = first[: max(0, len(first) + 1 - recipient.role.instances)]
        for older in displaced:
            self._take_off(older, "a newer recipient has registered for its role")
        self._admit(programs, recipient)
        return displaced

    async def silent_beside(self, recipient: RecipientProxy) -> list[RecipientProxy]:
        """Find those of a full role that do not answer: one was killed perhaps, and its successor registers here.

        1. A program dies. 2. Another one is started in its place, and registers before the loss is noticed. 3. It would
        displace one that is well.
        """
        role = recipient.role
        if role.instances == 1 or self.has_place(role):
            return []
        others = [each for each in self.connected(role.id) if not each.is_same_program(recipient)]
        answers = await asyncio.gather(*(each.ping("", DISPLACE_SECONDS) for each in others))
        return [each for each, is_there in zip(others, answers, strict=True) if not is_there]

    def _remove_former(self, programs: _Programs, recipient: RecipientProxy) -> bool:
        """End what the same program registered before; returns whether that served the role."""
        former = [each for each in programs if each.is_same_program(recipient)]
        served = any(each in programs.serving for each in former)
        for each in former:
            self._take_off(each, "it has registered anew")
        return served

    @staticmethod
    def _has_room(programs: _Programs, role: RoleEntry) -> bool:
        # Who came earlier goes first.
        return len(programs.in_place) < role.instances and not programs.standing_by

    def _admit(self, programs: _Programs, recipient: RecipientProxy) -> None:
        is_first = programs.served is None
        if programs.served is None:
            self._tell_gone(programs)
            programs.served = ServedRole(recipient)
        else:
            programs.served.add(recipient)
        role, is_paused = recipient.role, recipient.role.pause is not None
        self._slots.add(recipient, role.service, _capacity(recipient), programs.served, is_paused=is_paused)
        log.info("recipient registered", extra={"action": "registered", "role": role.login})
        self._events.joined.publish(recipient)
        if is_first:
            self._events.arrived.publish(programs.served)
            # Before anything can begin with it: all of this is one step of the event loop.
            self._follow_pause(programs)
        self._tell_arrived()

    def _tell_arrived(self) -> None:
        self._arrival.set()
        self._arrival = asyncio.Event()

    def _fill(self, role_id: int) -> None:
        """Let those that stand by take the places that are free."""
        programs = None if self._is_stopping else self._programs.get(role_id)
        while programs is not None and programs.standing_by:
            if len(programs.in_place) >= programs.standing_by[0].role.instances:
                return
            recipient = programs.standing_by.pop(0)
            log.info("recipient takes over", extra={"action": "taking_over", "role": recipient.role.login})
            self._admit(programs, recipient)

    def stop(self) -> None:
        """Let nobody take a place from now on: what began then would be broken off at once."""
        self._is_stopping = True

    # -- who goes --------------------------------------------------------------------------------------------------

    def remove(self, recipient: RecipientProxy, reason: str) -> None:
        """Take a recipient off the list and call it no more; one that is not on it changes nothing."""
        self._take_off(recipient, reason)
        self._fill(recipient.role.id)
        if not self.connected(recipient.role.id):
            self._programs.pop(recipient.role.id, None)

    def _take_off(self, recipient: RecipientProxy, reason: str) -> None:
        programs = self._programs.get(recipient.role.id)
        if programs is None or recipient not in list(programs):
            return
        is_serving = recipient in programs.serving
        for some in (programs.leaving, programs.standing_by):
            if recipient in some:
                some.remove(recipient)
        self._left[recipient.token_hash] = recipient.role.id
        if len(self._left) > MOST_REMEMBERED:
            del self._left[next(iter(self._left))]
        self._slots.remove(recipient)
        recipient.close()
        log.info("recipient left: %s", reason, extra={"action": "unregistered", "role": recipient.role.login})
        if is_serving:
            self._part(programs, recipient)
        if not programs.in_place:
            self._tell_gone(programs)

    def leave(self, recipient: RecipientProxy) -> None:
        """Give a leaving recipient nothing more; until it goes it may end its work.

        One that does not serve its role, as it is only introduced or was replaced, changes nothing.
        """
        programs = self._programs.get(recipient.role.id)
        if programs is None or recipient not in programs.serving:
            return
        programs.leaving.append(recipient)
        self._slots.suspend(recipient)
        log.info("recipient is leaving", extra={"action": "leaving", "role": recipient.role.login})
        self._part(programs, recipient)

    def _part(self, programs: _Programs, recipient: RecipientProxy) -> None:
        """Tell that a program serves its role no longer, and whether that was the last."""
        served = programs.served
        assert served is not None, "only those that serve a role part"
        served.discard(recipient)
        if not served.instances:
            programs.served, programs.is_paused = None, False
        self._events.parted.publish(recipient)
        if programs.served is None:
            self._last_seen[recipient.role.service] = self._clock.monotonic()
            programs.ending = served
            self._events.left.publish(served)

    def _tell_gone(self, programs: _Programs) -> None:
        ending, programs.ending = programs.ending, None
        if ending is not None:
            self._events.gone.publish(ending)

    # -- what changes ----------------------------------------------------------------------------------------------

    def follow(self, role: RoleEntry) -> list[RecipientProxy]:
        """Let a role have as many programs as it is configured for now.

        Programs beyond that number give their places up, the one first that came first: they finish what they have.
        Where further programs may stand by they do that from then on.

        Returns:
            The programs that are to be unregistered as soon as they have finished.
        """
        programs = self._programs.get(role.id, _Programs())
        for recipient in programs:
            recipient.role = role
        if programs.served is not None:
            programs.served.configure(role)
            self._events.configured.publish(programs.served)
        self._follow_pause(programs)
        surplus = programs.serving[: max(0, len(programs.in_place) - role.instances)]
        for recipient in surplus if role.standby else ():
            self._stand_down(programs, recipient)
        leaving = [] if role.standby else surplus
        for recipient in leaving:
            self.leave(recipient)
        self._fill(role.id)
        return leaving if role.standby else [*leaving, *programs.standing_by]

    def follow_pause(self, role: RoleEntry) -> None:
        """Pause or resume a role, and leave all else of it as it is yet."""
        programs = self._programs.get(role.id)
        if programs is not None and programs.served is not None:
            programs.served.configure(replace(programs.served.role, pause=role.pause))
            self._follow_pause(programs)

    def _follow_pause(self, programs: _Programs) -> None:
        """Begin nothing with a role that is paused, and begin again when it is resumed. Calls under way go on."""
        served = programs.served
        if served is None or (served.role.pause is not None) is programs.is_paused:
            return
        programs.is_paused = not programs.is_paused
        if programs.is_paused:
            for instance in served.instances:
                self._slots.pause(instance)
            self._last_seen[served.role.service] = self._clock.monotonic()
            log.info("recipient paused", extra={"action": "paused", "role": served.role.login})
            self._events.paused.publish(served)
            return
        for instance in served.instances:
            # Whether its role is in trouble may have changed meanwhile.
            self._slots.limit(instance, _capacity(instance))
            self._slots.resume(instance)
        log.info("recipient resumed", extra={"action": "resumed", "role": served.role.login})
        self._events.resumed.publish(served)
        self._tell_arrived()

    def _stand_down(self, programs: _Programs, recipient: RecipientProxy) -> None:
        programs.standing_by.append(recipient)
        self._slots.suspend(recipient)
        log.info("recipient stands by", extra={"action": "standing_by", "role": recipient.role.login})
        self._part(programs, recipient)

    # -- what others ask -------------------------------------------------------------------------------------------

    def is_displaced(self, token_hash: bytes) -> bool:
        """Check whether the recipient of this session left, and others have all places of its role now."""
        role_id = self._left.get(token_hash)
        programs = self._programs.get(role_id or 0)
        served = None if programs is None else programs.served
        if served is None or served.role.standby or len(served.instances) < served.role.instances:
            return False
        return self.find(served.role.id, token_hash) is None

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


def _capacity(recipient: RecipientProxy) -> int:
    """Give the number of envelopes that a recipient may have at once."""
    # An ordered role can't take the next envelope of a key before the outcome of the one before is known.
    return 1 if recipient.role.ordered else recipient.abilities.envelopes
