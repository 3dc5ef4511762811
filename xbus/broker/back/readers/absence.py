"""Tells health of readers that nobody reads for while something waits."""

from collections.abc import Callable
from datetime import datetime
from shlex import quote

from xbus.broker.back.readers.desks import ReaderDesks
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.readers.status import ReaderStatus, list_readers
from xbus.broker.journal.readers.subscriptions import ended_readers, list_subscriptions
from xbus.clock import Clock
from xbus.config import HealthLimits
from xbus.supervision.health import Health, Problem

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
