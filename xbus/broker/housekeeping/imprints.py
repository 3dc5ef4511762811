"""Keeps imprints of the configuration, so that an examination of the journal finds rows that damage has changed."""

import logging

from xbus.broker.journal.imprints import keep_imprints, make_imprints
from xbus.broker.journal.journal import Journal
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Seconds between looks for a new version. Smaller leaves less time without imprints, and reads all tables more often
while programs make topics one after another."""


class ImprintKeeper:
    """Makes new imprints a moment after the configuration has changed.

    Args:
        journal: entered.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def watch(self) -> None:
        """Look now and then, for ever; an unreachable database only delays them."""
        await every(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        try:
            await self.catch_up()
        except JournalUnavailable as error:
            log.info("the imprints are behind: %s", error, extra={"action": "imprints_delayed"})
        except JournalError as error:
            log.error("the imprints can't be made: %s", error, extra={"action": "imprints_failed"})

    async def catch_up(self) -> None:
        """Make those of the present version, if there are none. Rows are read beside those who write.

        Raises:
            JournalError: the database does not do it.
        """
        found = await self._journal.read(make_imprints)
        if found is not None:
            await self._journal.run(keep_imprints, found)
