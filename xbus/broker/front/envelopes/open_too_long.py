"""Tells health of envelopes that have been open for too long: neither sealed nor cancelled, nobody gets them."""

import math
from datetime import timedelta

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.stalled import Stalled, count_open
from xbus.clock import Clock
from xbus.supervision.health import Health, Problem

OPEN_TOO_LONG = "open_too_long"


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
