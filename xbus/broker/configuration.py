"""The configuration in use, kept up to date while the broker runs."""

import logging
from collections.abc import Callable

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog, read_catalog, read_version
from xbus.errors import JournalUnavailable
from xbus.periodic import after_every
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Seconds between looks at the version of the configuration. A look reads one row."""

UNREADABLE = "journal_unreadable"
"""The problem that health shows."""


class Configuration:
    """The newest catalog that was read.

    Args:
        journal: has the configuration.
        health: shows a problem while it can't be read: each look is a sign whether the database answers.
    """

    def __init__(self, journal: Journal, health: Health | None = None) -> None:
        self._journal = journal
        self._health = health
        self._listeners: list[Callable[[], None]] = []
        self.catalog = Catalog(version=-1, event_types={}, emitters={}, roles={})

    async def refresh(self) -> None:
        """Read the catalog anew if it has changed.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        if await self._journal.read(read_version) == self.catalog.version:
            return
        self.catalog = (await self._journal.read(read_catalog)).after(self.catalog)
        log.info("configuration read", extra={"action": "configuration_read", "version": self.catalog.version})
        for listener in self._listeners:
            listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called after each change."""
        self._listeners.append(listener)

    async def watch(self) -> None:
        """Refresh for ever; an unreachable database only delays it."""
        await after_every(POLL_SECONDS, self._look)

    async def _look(self) -> None:
        try:
            await self.refresh()
        except JournalUnavailable as error:
            log.warning("configuration not read: %s", error, extra={"action": "configuration_unread"})
            if self._health is not None:
                self._health.trouble(UNREADABLE, "the database can't be read now", "see that it runs")
        else:
            if self._health is not None:
                self._health.over(UNREADABLE)
