"""Ends pauses whose time is over."""

import logging
from collections.abc import Callable

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes import EndPauses
from xbus.clock import Clock
from xbus.errors import JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between looks at the ends of pauses, which are in memory. Smaller resumes sooner and costs wake-ups."""


class PauseEnder:
    """Resumes by itself what was paused until a moment.

    Args:
        journal: keeps the pauses.
        catalog: knows them, and learns of their end as of any change.
        clock: says what time it is.
    """

    def __init__(self, journal: Journal, catalog: Callable[[], Catalog], clock: Clock) -> None:
        self._journal = journal
        self._catalog = catalog
        self._clock = clock

    async def watch(self) -> None:
        """Look now and then, for ever; an unreachable database only delays the end."""
        await every(LOOK_SECONDS, self._try_to_look)

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except JournalUnavailable as error:
            log.info("no pause ended: %s", error, extra={"action": "pauses_not_ended"})

    async def look(self) -> None:
        """End the pauses that are over.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        now = self._clock.now()
        if any(pause.is_over(now) for pause in self._catalog().pauses.values()):
            await self._journal.write(EndPauses(now))
