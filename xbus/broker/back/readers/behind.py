"""Looks after readers that nobody reads for, and after those that lag too far: these may skip, or are detached."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from shlex import quote

from xbus.broker.back.readers.desks import ReaderDesks
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.readers.subscriptions import ended_readers, list_subscriptions
from xbus.broker.journal.retention.reader_lags import BehindReader, find_behind, set_detached
from xbus.clock import Clock
from xbus.config import HealthLimits
from xbus.supervision.health import Health, Problem

READER_BEHIND = "reader_behind"


class BehindReaders:
    """Compares the lag of readers with their limits.

    Args:
        journal: knows both.
        desks: know whose programs give signs of life, and which batches are out.
        health: shows readers that stay beyond their limits.
        clock: measures ages.

    Attributes:
        skipped: how many envelopes each reader was made to do without, by its name, since the process began.
    """

    def __init__(self, journal: Journal, desks: ReaderDesks, health: Health, clock: Clock) -> None:
        self._journal = journal
        self._desks = desks
        self._health = health
        self._clock = clock
        self.skipped: Counter[str] = Counter()

    async def look(self) -> None:
        """Look at all readers with a limit once.

        Raises:
            JournalError: the database does not do it now.
        """
        behind = await self._journal.read(find_behind, self._clock.now())
        problems = [self._problem(each) for each in behind if not await self._is_seen_to(each)]
        self._health.replace([READER_BEHIND], problems)
        await self._attach({each.entry.id for each in behind if each.when_behind == "detach"})

    async def _is_seen_to(self, reader: BehindReader) -> bool:
        """Skip or detach as the reader wants; false where people have to be told."""
        told = {"reader": reader.entry.name}
        if reader.when_behind == "skip":
            desk = self._desks.desk(reader.entry.key)
            moved = 0 if desk is None else await desk.pass_to(Place(reader.upto + 1), reader.told)
            if moved:
                self.skipped[reader.entry.name] += reader.passes
                log.warning(
                    "the reader %s skips: %s", *(reader.entry.name, reader.told), extra={"action": "skipped", **told}
                )
            return True
        if reader.entry.is_detached:
            return True
        if reader.when_behind == "detach" and reader.entry.name in self._desks.absent_names():
            await self._journal.run(set_detached, reader.entry.id, self._clock.now())
            log.warning(
                "the reader %s is detached: %s", *(reader.entry.name, reader.told), extra={"action": "detached", **told}
            )
            return True
        return False

    async def _attach(self, behind: set[int]) -> None:
        """Have retention wait again for readers that have caught up, or have no such limit any more."""
        for entry in await self._journal.read(read_readers):
            if entry.is_detached and entry.id not in behind:
                await self._journal.run(set_detached, entry.id, None)
                log.info(
                    "the reader %s is attached again", entry.name, extra={"action": "attached", "reader": entry.name}
                )

    def _problem(self, reader: BehindReader) -> Problem:
        name = reader.entry.name
        detaches = reader.when_behind == "detach"
        return Problem(
            READER_BEHIND,
            name,
            f"the reader {name} is too far behind: {reader.told}",
            self._clock.now(),
            f"see why its programs are slow; the bus waits for {name} no longer once none of them reads"
            if detaches
            else f"start more programs of it; xbus reader move {quote(name)} head skips what it has not read",
        )


log = logging.getLogger(__name__)


READER_ABSENT = "reader_absent"


class AbsentReaders:
    """Reports readers without a program for longer than their roles permit.

    Args:
        journal: knows how far each has read.
        desks: know whose programs give signs of life.
        catalog: the configuration as it is now.
        health: shows the findings.
        clock: measures absence.
        limits: how long a reader may be away whose roles set no limit.
    """

    def __init__(
        self,
        journal: Journal,
        desks: ReaderDesks,
        catalog: Callable[[], Catalog],
        health: Health,
        clock: Clock,
        limits: HealthLimits,
    ) -> None:
        self._journal = journal
        self._desks = desks
        self._catalog = catalog
        self._health = health
        self._clock = clock
        self._limits = limits

    async def look(self) -> None:
        """Report to health all readers that are away for too long, and no others.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        absent = self._desks.absent_names()
        found = await self._journal.read(list_readers) if absent else []
        ended = ended_readers(await self._journal.read(list_subscriptions)) if found else set()
        problems = [self._problem(status) for status in found if status.entry.name in absent - ended]
        # Programs may have come while the journal was read.
        still = self._desks.absent_names()
        present = [problem for problem in problems if problem is not None and problem.about in still]
        self._health.replace([READER_ABSENT], present)

    def _problem(self, status: ReaderStatus) -> Problem | None:
        since = _absent_since(status)
        if since is None or status.is_paused:
            return None
        if (self._clock.now() - since).total_seconds() < 60 * self._minutes(status.entry.key):
            return None
        name = status.entry.name
        return Problem(
            READER_ABSENT,
            name,
            f"nobody reads for the reader {name} since {since:%Y-%m-%d %H:%M:%SZ}, and events wait for it",
            since,
            f"start its program; xbus reader show {quote(name)} says who has read last",
        )

    def _minutes(self, key: str) -> float:
        said = [role.absent_minutes for role in self._catalog().reader_roles.values() if role.service == key]
        return min((each for each in said if each is not None), default=self._limits.absent_minutes)


def _absent_since(status: ReaderStatus) -> datetime | None:
    """Find since when something waits and nothing was settled; None where nothing waits."""
    if status.waits_since is None:
        return None
    settled = [each.settled_at for each in status.ranges if each.settled_at is not None]
    return max([status.waits_since, *settled])
