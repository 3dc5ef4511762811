"""Keeps the log's table of contents, block by block behind the head: so rare types are found at once."""

import logging

from xbus.broker.housekeeping.looks import pause_after
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.contents import read_unlisted
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks for blocks that are full. Smaller leaves less at the head to be read, and costs reads."""


class ContentsKeeper:
    """Lists what was sealed. A journal of an older program is listed from its oldest envelope on, in the same way.

    A block is read beside those who write, and written together with what they write.

    Args:
        journal: entered.
        clock: tells how long a step took.
        look_seconds: how often it looks.
    """

    def __init__(self, journal: Journal, clock: Clock, look_seconds: float = LOOK_SECONDS) -> None:
        self._journal = journal
        self._clock = clock
        self._look_seconds = look_seconds

    async def watch(self) -> None:
        """For ever: list; an unreachable database only delays it."""
        await every(self._look_seconds, self._look)

    async def _look(self) -> None:
        try:
            await self.catch_up()
        except JournalUnavailable as error:
            log.warning("no table of contents written: %s", error, extra={"action": "listing_delayed"})
        except JournalError as error:
            log.error("the table of contents can't be written: %s", error, extra={"action": "listing_failed"})

    async def catch_up(self) -> None:
        """List all blocks that are full.

        Raises:
            JournalError: the database does not do it; what was listed stays so.
        """
        while True:
            began = self._clock.monotonic()
            block = await self._journal.read(read_unlisted)
            if block is None:
                return
            await self._journal.write(block)
            await pause_after(began, self._clock)
