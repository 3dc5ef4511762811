"""Tells the registrations that are this journal's own from those that a copy of a journal brought along.

A copy holds the addresses of recipients that serve the original. A broker that calls them takes them away from it, and
brings them envelopes for the second time.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from xbus.broker.journal.database.place import read_place
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.sessions import StoredRegistration, read_registrations
from xbus.errors import JournalUnavailable
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

PROBLEM = "foreign_registrations"
"""The problem that health shows."""

NEXT_STEP = (
    "if the original is gone and this is the live journal now, run xbus journal adopt; if this is a copy beside it, "
    "run xbus journal forget; recipients that register here are served in either case"
)

LOOK_SECONDS = 2.0
"""Seconds between looks for what an operator decided. Smaller notices sooner and costs a read each time."""


class OwnRegistrations:
    """Lets the back call recipients that registered where the journal is now, and no others.

    Args:
        journal: has the registrations.
        health: shows the registrations that were made elsewhere.
        look_seconds: seconds between looks for a decision of an operator.
    """

    def __init__(self, journal: Journal, health: Health, look_seconds: float = LOOK_SECONDS) -> None:
        self._journal = journal
        self._health = health
        self._look_seconds = look_seconds
        self._foreign: Sequence[StoredRegistration] = ()
        self.place = ""
        """Where the journal is; to be written into each registration."""

    async def read(self) -> list[StoredRegistration]:
        """Find out where the journal is, and read all its registrations.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        self.place = await self._journal.read(read_place)
        return await self._journal.read(read_registrations)

    def own(self, registrations: Sequence[StoredRegistration]) -> list[StoredRegistration]:
        """Give those that were made here; the others become a problem, which ends when none is left."""
        self._foreign = [registration for registration in registrations if registration.place != self.place]
        if self._foreign:
            before = self._foreign[0].place or "a place that is not known"
            cause = f"{_counted(self._foreign)} at {before}; this journal is at {self.place} and may be a copy"
            self._health.trouble(PROBLEM, cause, NEXT_STEP)
        else:
            self._health.over(PROBLEM)
        return [registration for registration in registrations if registration.place == self.place]

    def is_foreign(self, role_id: int) -> bool:
        """Check whether the recipient of a role registered elsewhere, so that an operator may have it called."""
        return any(registration.role_id == role_id for registration in self._foreign)

    async def holds(self, registration: StoredRegistration) -> bool:
        """Check whether a registration is still the newest of its role, as far as the database shows now."""
        try:
            return registration in await self._journal.read(read_registrations)
        except JournalUnavailable as error:
            log.info("registrations not read: %s", error, extra={"action": "registrations_unread"})
            return True

    async def watch(self, resume: Callable[[Sequence[StoredRegistration]], None]) -> None:
        """Wait until no foreign registration is left, and pass those on that an operator has adopted."""
        while self._foreign:
            await asyncio.sleep(self._look_seconds)
            try:
                registrations = await self._journal.read(read_registrations)
            except JournalUnavailable as error:
                log.info("registrations not read: %s", error, extra={"action": "registrations_unread"})
                continue
            waiting = {(it.role_id, it.token_hash, it.uri) for it in self._foreign}
            own = self.own(registrations)
            # One that registered anew since is another row: the back has it already.
            resume([it for it in own if (it.role_id, it.token_hash, it.uri) in waiting])


def _counted(registrations: Sequence[StoredRegistration]) -> str:
    number = len(registrations)
    who = "1 recipient, which is" if number == 1 else f"{number} recipients, which are"
    return f"{who} not called, registered"
