"""Hangs new rows of the audit into its chain, a moment after they were written."""

import logging

from xbus.broker.journal.audit import MOST_AT_ONCE, hang_new, has_new
from xbus.broker.journal.journal import Journal
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Seconds between looks for new rows. Smaller leaves less time to change a row unseen, and costs reads."""


class AuditKeeper:
    """Keeps the audit's chain at the newest row. Commands and brokers that are at it at the same time take turns.

    Args:
        journal: entered.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def watch(self) -> None:
        """Look now and then, for ever; an unreachable database only delays the chain."""
        await every(LOOK_SECONDS, self._look)

    async def _look(self) -> None:
        try:
            await self.catch_up()
        except JournalUnavailable as error:
            log.info("the audit's chain is behind: %s", error, extra={"action": "audit_delayed"})
        except JournalError as error:
            log.error("the audit's chain can't be written: %s", error, extra={"action": "audit_failed"})

    async def catch_up(self) -> None:
        """Append all new rows to the chain. Rows that another program appends meanwhile are left to it.

        Raises:
            JournalError: the database does not do it.
        """
        if not await self._journal.read(has_new):
            return
        # Never with the writes of emitters: a lock on the head must keep none of them waiting.
        while await self._journal.run(hang_new, wait=False) == MOST_AT_ONCE:
            pass
