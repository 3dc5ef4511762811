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
"""Seconds from a start to the first round: a broker that starts after a crash has recipients to serve first. A page
that can't be read is tried again as late."""

ROUND_SECONDS = 7 * 24 * 3600.0
"""Seconds between rounds. Fewer find damage sooner in what nobody reads, and read the whole journal more often."""

PAGE_SECONDS = 0.25
"""Seconds that a page of 1 MiB takes at the least: 100 GB take seven hours, and a disk is left to others."""

TRIES = 10
"""Times that a page is tried, a minute apart, before health tells that it can't be read. Fewer take a disturbance for
damage."""

UNREAD = "stored items that can't be read"
"""The name by which health reports a page that the database, or an object store, does not give any more."""

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
        self._told: dict[str, float] = {}
        """The problems in health, each with the moment at which it was told last."""

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
            self._end_before(self._clock.monotonic() - ROUND_SECONDS)

    async def look_through(self) -> None:
        """Compare all items with their hashes once, and the items of bulk workers' outputs."""
        began = self._clock.monotonic()
        await self._look_through(find_damage)
        await self._look_through(find_damaged_outputs)
        # Damage that was met meanwhile may lie in what was passed before.
        self._end_before(began)

    async def _look_through(self, find: Callable[[Connection, SegmentPlace], DamagePage | None]) -> None:
        place, failed = BEGINNING, 0
        while True:
            began = self._clock.monotonic()
            try:
                page = await self._journal.read(find, place)
            except JournalError as error:
                log.info("items not compared: %s", error, extra={"action": "damage_unread"})
                # An outage of all is told by others, and ends.
                failed += self._journal.outage is None
                if failed == TRIES:
                    # Health answers everybody, and the words of a database may name places.
                    self._tell(UNREAD, "stored items can't be read, and those behind them are not compared")
                await asyncio.sleep(FIRST_SECONDS)
                continue
            self._end(UNREAD)
            if page is None:
                return
            place, failed = page.end, 0
            for damaged in page.damaged:
                self._tell(damaged.about, damaged.cause)
            await pause_after(began, self._clock)
            await asyncio.sleep(max(0.0, self._page_seconds - (self._clock.monotonic() - began)))

    def _end_before(self, moment: float) -> None:
        """End the problems that were told last before a moment of the monotonic clock."""
        for about in [about for about, told_at in self._told.items() if told_at < moment]:
            self._end(about)

    def _end(self, about: str) -> None:
        if self._told.pop(about, None) is not None:
            self._health.over(DAMAGED, about=about)

    def _tell(self, about: str, cause: str) -> None:
        log.error("%s: %s", about, cause, extra={"action": DAMAGED})
        self._health.trouble(DAMAGED, cause, NEXT_STEP, about=about)
        self._told[about] = self._clock.monotonic()
