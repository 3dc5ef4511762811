"""Compares all stored items with their hashes, slowly, and tells health of items that were damaged."""

import asyncio
import logging
from collections.abc import Callable

from xbus.broker.housekeeping.looks import pause_after
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.database.connection import Connection
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.damage import BEGINNING, DamagePage, SegmentPlace, find_damage, find_damaged_outputs
from xbus.clock import Clock
from xbus.errors import JournalError
from xbus.supervision.health import Health

log = logging.getLogger(__name__)

FIRST_SECONDS = 60.0
"""Seconds from a start to the first round: a broker that starts after a crash has recipients to serve first."""

ROUND_SECONDS = 7 * 24 * 3600.0
"""Seconds between rounds. Fewer find damage sooner in what nobody reads, and read the whole journal more often."""

PAGE_SECONDS = 0.25
"""Seconds that a page of 1 MiB takes at the least: 100 GB take seven hours, and a disk is left to others."""

MET = "stored items"
"""The name by which health reports damage that a delivery or a reader met. A round names the events."""

NEXT_STEP = "run xbus fsck; restore a backup, or have the items sent again and drop what is parked"


class DamageKeeper:
    """Looks through all segments, once behind each start and then now and then.

    Args:
        journal: entered.
        clock: says how long a page took.
        health: shows what is damaged until a round finds it no more.
        page_seconds: how long a page takes at the least.
    """

    def __init__(self, journal: Journal, clock: Clock, health: Health, page_seconds: float = PAGE_SECONDS) -> None:
        self._journal = journal
        self._clock = clock
        self._health = health
        self._page_seconds = page_seconds
        self._told: set[str] = set()

    def met(self, error: JournalError) -> None:
        """Tell health that a read has met damage."""
        self._tell(MET, error.cause)

    async def watch(self) -> None:
        """Look through the journal for ever; an unreachable database only delays it."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            await self.look_through()
            await asyncio.sleep(ROUND_SECONDS)

    async def forget(self) -> None:
        """End problems after the time of a round, for ever: the process of the back looks through the journal."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            self._replace(set())

    async def look_through(self) -> None:
        """Compare all items with their hashes once, and the items of bulk workers' outputs."""
        self._replace(await self._look_through(find_damage) | await self._look_through(find_damaged_outputs))

    async def _look_through(self, find: Callable[[Connection, SegmentPlace], DamagePage | None]) -> set[str]:
        found: set[str] = set()
        place = BEGINNING
        while True:
            began = self._clock.monotonic()
            try:
                page = await self._journal.read(find, place)
            except JournalError as error:
                log.info("items not compared: %s", error, extra={"action": "damage_unread"})
                await asyncio.sleep(FIRST_SECONDS)
                continue
            if page is None:
                return found
            place = page.end
            for damaged in page.damaged:
                self._tell(damaged.about, damaged.cause)
                found.add(damaged.about)
            await pause_after(began, self._clock)
            await asyncio.sleep(max(0.0, self._page_seconds - (self._clock.monotonic() - began)))

    def _replace(self, found: set[str]) -> None:
        for about in self._told - found:
            self._health.over(DAMAGED, about=about)
        self._told = found

    def _tell(self, about: str, cause: str) -> None:
        log.error("%s: %s", about, cause, extra={"action": DAMAGED})
        self._health.trouble(DAMAGED, cause, NEXT_STEP, about=about)
        self._told.add(about)
