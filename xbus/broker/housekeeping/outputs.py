"""Removes what bulk workers wrote that does not count: of attempts that came to nothing, and files taken over."""

import asyncio
import logging
from datetime import timedelta

from xbus.broker.housekeeping.looks import pause_after
from xbus.broker.journal.bulk import cleaning as bulk_cleaning
from xbus.broker.journal.journal import Journal
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Seconds between two looks for what can be removed. Smaller frees space sooner and costs reads."""

ROW_SECONDS = 24 * 3600.0
"""Seconds for which the row of a failed attempt is kept, so that operators can see its cause."""


class OutputCleaner:
    """Removes what came to nothing, in small steps.

    Args:
        journal: entered.
        clock: measures ages.
        look_seconds: how often it looks.
        step_bytes: one step removes about so much; others write between two steps.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        look_seconds: float = LOOK_SECONDS,
        step_bytes: int = bulk_cleaning.STEP_BYTES,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._look_seconds = look_seconds
        self._step_bytes = step_bytes

    async def watch(self) -> None:
        """Remove leftovers, for ever; an unreachable database only delays it."""
        await every(self._look_seconds, self._look)

    async def _look(self) -> None:
        try:
            await self.clean()
        except JournalUnavailable as error:
            log.warning("no outputs removed: %s", error, extra={"action": "cleaning_delayed"})
        except JournalError as error:
            log.error("outputs that don't count can't be removed: %s", error, extra={"action": "cleaning_failed"})

    async def clean(self) -> None:
        """Remove all leftovers.

        Raises:
            JournalError: the database refuses; earlier removals remain.
        """
        until = self._clock.now() - timedelta(seconds=ROW_SECONDS)
        while True:
            began = self._clock.monotonic()
            if not await self._journal.run(bulk_cleaning.clean_attempts, until, self._step_bytes):
                break
            await pause_after(began, self._clock)
        stray = await self._journal.read(bulk_cleaning.find_stray_files)
        if stray.attempt_ids:
            await asyncio.to_thread(stray.remove)
