"""Open envelopes end without their emitters: after a time without a call, or as an operator cancels them.

Health tells of those that are open for too long.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Collection, Iterable
from datetime import timedelta
from typing import NoReturn, Protocol
from uuid import UUID

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.envelopes import read_open_envelopes
from xbus.broker.journal.operations.stalled import Stalled, count_open
from xbus.clock import Clock
from xbus.errors import JournalError, Refused
from xbus.periodic import every
from xbus.rpc.deferred import Answer, awaited
from xbus.supervision.health import Health, Problem

log = logging.getLogger(__name__)

LONGEST_LOOK_SECONDS = 60.0
LOOKS = 10
"""Within a time-out it is looked so often, yet at least once a minute."""

LOOK_AGAIN_SECONDS = 1.0
"""Seconds until the next try to read what operators cancelled, after the database did not answer."""

OPEN_TOO_LONG = "open_too_long"


class Openings(Protocol):
    """Knows which envelopes emitters call for, and can cancel one."""

    def called(self) -> Iterable[UUID]:
        """The envelopes that calls were made for since this was asked last."""

    def give_up(self, envelope_id: UUID, reason: str) -> Answer[bool]:
        """Cancel an envelope; answered, maybe later, with whether that was still to be done."""


class OpenTimeouts:
    """Cancels open envelopes for which no call has come for long: since the last one, or since this began.

    Args:
        journal: says which are open.
        front: knows the calls, and cancels.
        clock: measures how long.
        seconds: how long an envelope may stay open without a call.
    """

    def __init__(self, journal: Journal, front: Openings, clock: Clock, seconds: float) -> None:
        self._journal = journal
        self._front = front
        self._clock = clock
        self._seconds = seconds
        self._called_at: dict[UUID, float] = {}

    async def watch(self) -> None:
        """For ever: look; an unreachable database only delays it."""
        await every(min(self._seconds / LOOKS, LONGEST_LOOK_SECONDS), self._try_to_look)

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except JournalError as error:
            log.warning("open envelopes not looked at: %s", error, extra={"action": "open_envelopes_unread"})

    async def look(self) -> None:
        """Cancel those that were left for too long.

        Raises:
            JournalError: the database does not do it.
        """
        are_open = await self._journal.read(read_open_envelopes)
        now = self._clock.monotonic()
        # Asked after the journal was: no call that came meanwhile is missed.
        called = set(self._front.called())
        self._called_at = {
            envelope_id: now if envelope_id in called else self._called_at.get(envelope_id, now)
            for envelope_id in are_open
        }
        for envelope_id, called_at in self._called_at.items():
            if now - called_at >= self._seconds:
                await self._give_up(envelope_id)

    async def _give_up(self, envelope_id: UUID) -> None:
        reason = f"its emitter made no call for it for {self._seconds:g} s, see open_envelope_timeout"
        try:
            is_done = await awaited(self._front.give_up(envelope_id, reason))
        except Refused:  # its emitter was just quick enough
            return
        if is_done:
            log.warning("an open envelope is cancelled: %s", reason, extra=_extra(envelope_id))


def _extra(envelope_id: UUID) -> dict[str, object]:
    return {"action": "open_envelope_timed_out", "envelope_id": envelope_id}


class Cancelled(Protocol):
    """Keeps open envelopes in memory, and can forget those that are cancelled in the journal."""

    def forget_cancelled(self) -> Awaitable[Collection[UUID]]:
        """Forget them; answered with their ids."""


class OperatorCancels:
    """Has the front forget the envelopes that operators cancel in the journal.

    A command writes the cancel and raises the version of the configuration, in one transaction. So the front looks
    after each change of the configuration, and at no other time.

    Args:
        front: keeps open envelopes in memory.
    """

    def __init__(self, front: Cancelled) -> None:
        self._front = front
        self._changed = asyncio.Event()

    def configuration_changed(self) -> None:
        """Look soon, by ``watch``."""
        self._changed.set()

    async def watch(self) -> NoReturn:
        """For ever: look after each change; an unreachable database only delays it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.look()
            except JournalError as error:
                log.warning("cancelled envelopes not read: %s", error, extra={"action": "open_envelopes_unread"})
                self._changed.set()
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def look(self) -> None:
        """Have those forgotten that were cancelled.

        Raises:
            JournalError: the database can't be read now.
        """
        for envelope_id in await self._front.forget_cancelled():
            extra = {"action": "open_envelope_cancelled", "envelope_id": envelope_id}
            log.warning("an operator cancelled an open envelope", extra=extra)


class OpenTooLong:
    """Looks now and then for envelopes that have been open for longer than they should.

    Args:
        journal: where envelopes are read.
        health: told of what is found.
        clock: tells how old it is.
        minutes: how long an envelope may be open; infinite for as long as it likes.
    """

    def __init__(self, journal: Journal, health: Health, clock: Clock, minutes: float) -> None:
        self._journal = journal
        self._health = health
        self._clock = clock
        self._minutes = minutes

    async def look(self) -> None:
        """Tell health of each emitter that has such envelopes, and of no other.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        if math.isinf(self._minutes):
            return
        found = await self._journal.read(count_open, self._clock.now() - timedelta(minutes=self._minutes))
        self._health.replace([OPEN_TOO_LONG], [self._problem(login, stalled) for login, stalled in found.items()])

    def _problem(self, login: str, found: Stalled) -> Problem:
        cause = (
            f"{found.told('envelope')} of the emitter {login} {'is' if found.number == 1 else 'are'} open for "
            f"{self._minutes:g} minutes or longer, the oldest since {found.since:%Y-%m-%d %H:%M:%SZ}"
        )
        next_step = (
            "see them with xbus envelope list --state open, and whether the emitter still runs; xbus envelope cancel "
            "ends one at once, [front] open_envelope_timeout what the emitter has left"
        )
        return Problem(OPEN_TOO_LONG, login, cause, found.since, next_step)
