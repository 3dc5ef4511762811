"""The families that only the database knows: how far roles and readers lag, what is parked, and how much is stored.

However often somebody asks, the database is looked at so seldom that it costs nobody anything: after each look it is
left alone for a hundred times as long as the look took, and for some seconds at least.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.figures import BotFigures, JournalFigures, read_figures
from xbus.broker.journal.readers.status import RangeStatus, ReaderStatus
from xbus.broker.metrics.families import Family, Labels, age, counter, gauge, one
from xbus.clock import Clock
from xbus.errors import JournalError
from xbus.states import BotRunState, RangeState

log = logging.getLogger(__name__)


RANGE_STATES = (RangeState.FREE, RangeState.LEASED, RangeState.OUT)
"""The states of ranges in use: others have gone on as other ranges."""


def reader_families(readers: Sequence[ReaderStatus], now: datetime) -> Iterator[Family]:
    """Show how far readers are, and how the calls of subscriptions go."""
    yield gauge(
        "xbus_reader_lag_seconds",
        "Age of the oldest event that a reader has not settled, since its seal; 0 without any",
        [(_of(each), age(each.waits_since, now)) for each in readers],
    )
    yield gauge(
        "xbus_reader_lag_events",
        "Events from the place of the range that is furthest behind on; 10,000 stands for more, too",
        [(_of(each), each.lag) for each in readers],
    )
    yield gauge(
        "xbus_reader_ranges",
        "Ranges of a reader by state; no program has those that are free",
        [sample for each in readers for sample in _ranges(_of(each), each.ranges)],
    )
    yield gauge("xbus_reader_paused", "1 while a reader is paused", [(_of(each), each.is_paused) for each in readers])
    yield gauge(
        "xbus_reader_detached",
        "1 while a reader lags further than it may, and retention waits for it no longer",
        [(_of(each), each.entry.is_detached) for each in readers],
    )
    subscribers = [each.subscriber for each in readers if each.subscriber is not None]
    yield gauge(
        "xbus_subscription_failures",
        "Calls of a subscription that failed one after another",
        [({"subscription": each.name}, each.failures) for each in subscribers],
    )
    yield gauge(
        "xbus_subscription_retry_seconds",
        "Seconds until a subscriber is called again that did not take a batch; 0 for one that is well",
        [({"subscription": each.name}, _seconds_to(each.retry_at, now)) for each in subscribers],
    )
    yield gauge(
        "xbus_subscription_parked_batches",
        "Batches of a subscription that wait for a person",
        [({"subscription": each.name}, each.parked) for each in subscribers],
    )


def skipped_family(skipped: Mapping[str, int]) -> Family:
    """Show what readers were made to do without.

    Args:
        skipped: how many envelopes, by the name of the reader.
    """
    samples: list[tuple[Labels, float]] = [({"reader": name}, number) for name, number in sorted(skipped.items())]
    return counter("xbus_reader_skipped_envelopes", "Envelopes that a reader with a limit did without", samples)


def bot_families(bots: Sequence[BotFigures]) -> Iterator[Family]:
    """Show the runs of bots that wait or are under way, and the bots that fail."""
    yield gauge(
        "xbus_bot_runs",
        "Runs of a bot that wait for a runner, or are under way",
        [
            ({"bot": each.name, "state": state.value}, number)
            for each in bots
            for state, number in ((BotRunState.DUE, each.due), (BotRunState.RUNNING, each.running))
        ],
    )
    yield gauge(
        "xbus_bot_failures",
        "Attempts of a bot that failed one after another",
        [({"bot": each.name}, each.failures) for each in bots],
    )
    yield gauge(
        "xbus_bot_slowed",
        "1 while a bot is tried once in a while only, as too many attempts failed",
        [({"bot": each.name}, each.is_slowed) for each in bots],
    )


def _seconds_to(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (moment - now).total_seconds())


def _of(reader: ReaderStatus) -> Labels:
    return {"reader": reader.entry.name}


def _ranges(reader: Labels, ranges: Iterable[RangeStatus]) -> list[tuple[Labels, float]]:
    """Count ranges by state; a state without any has a 0, so that a graph of it ends."""
    counts = Counter(each.range.state for each in ranges)
    return [({**reader, "state": state.value}, counts[state]) for state in RANGE_STATES]


FRESH_SECONDS = 5.0
"""Seconds for which a look is good enough. Less shows newer figures, and costs looks."""

PAUSE_SHARE = 100
"""The pause after a look, as a multiple of its time: it takes a hundredth of a reader's time at the most."""

WAIT_SECONDS = 2.0
"""Seconds that a scrape waits for a look. After that it shows the figures of the one before."""


class JournalLook:
    """The newest figures of the journal.

    Args:
        journal: entered.
        clock: tells how old they are.
        path: the file of the database; None for a server.
        max_bytes: the limit of all items; 0 for none.
        wait_seconds: how long a scrape waits for a look.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        path: Path | None,
        max_bytes: int,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._path = path
        self._max_bytes = max_bytes
        self._wait_seconds = wait_seconds
        self._figures: JournalFigures | None = None
        self._disk: _Disk | None = None
        self._taken_at = 0.0
        self._next_at = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Look at the journal, unless that was done a moment ago, or takes too long."""
        if self._looking is None and self._clock.monotonic() >= self._next_at:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="figures of the journal")
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=self._wait_seconds)

    async def _look(self) -> None:
        began = self._clock.monotonic()
        try:
            self._figures = await self._journal.read(read_figures)
            if self._path is not None:
                self._disk = await asyncio.to_thread(_read_disk, self._path)
            self._taken_at = began
        except (JournalError, OSError) as error:
            log.info("figures not read: %s", error, extra={"action": "figures_unread"})
        except Exception:
            # A fault of ours: the bus goes on without these figures.
            log.exception("figures not read", extra={"action": "figures_unread"})
        finally:
            ended = self._clock.monotonic()
            self._next_at = ended + max(FRESH_SECONDS, PAUSE_SHARE * (ended - began))
            self._looking = None

    def families(self) -> Iterator[Family]:
        """Show the newest figures; without any, families without samples."""
        figures, now = self._figures, self._clock.now()
        roles = [] if figures is None else figures.roles
        yield gauge(
            "xbus_lag_seconds",
            "Age of the oldest envelope that a role lacks and that arrives by itself, since its seal; 0 without any",
            [({"role": role.role}, age(role.owed_since, now)) for role in roles if role.lag is not None],
        )
        yield gauge(
            "xbus_lag_envelopes",
            "Envelopes that a role lacks and that arrive by themselves; above 1,000 an estimate",
            [({"role": role.role}, role.lag) for role in roles if role.lag is not None],
        )
        yield gauge(
            "xbus_parked_envelopes",
            "Envelopes that are parked for a role",
            [({"role": role.role}, role.parked) for role in roles],
        )
        yield gauge(
            "xbus_parked_items",
            "Items that are parked alone for a role",
            [({"role": role.role}, role.parked_items) for role in roles],
        )
        yield from reader_families([] if figures is None else figures.readers, now)
        yield from bot_families([] if figures is None else figures.bots)
        item_bytes = [] if figures is None else one(figures.item_bytes)
        yield gauge("xbus_journal_item_bytes", "Bytes of all items in the journal", item_bytes)
        limit = one(self._max_bytes) if self._max_bytes else []
        yield gauge(
            "xbus_journal_item_limit_bytes", "The value of max_bytes in [journal]; absent without a limit", limit
        )
        yield from self._sizes(None if figures is None else figures.database_bytes)
        look_age = [] if figures is None else one(self._clock.monotonic() - self._taken_at)
        yield gauge("xbus_journal_look_age_seconds", "Age of the figures of roles and journal", look_age)

    def _sizes(self, database_bytes: int | None) -> Iterator[Family]:
        size = database_bytes if self._disk is None else self._disk.taken_bytes
        about = "Bytes that the database takes on its disk"
        yield gauge("xbus_journal_disk_bytes", about, [] if size is None else one(size))
        about = "Bytes free on the disk of an SQLite journal; absent with PostgreSQL"
        yield gauge("xbus_journal_disk_free_bytes", about, [] if self._disk is None else one(self._disk.free_bytes))


class _Disk(NamedTuple):
    """The file of a database on its disk."""

    taken_bytes: int
    free_bytes: int


def _read_disk(path: Path) -> _Disk:
    """Look at the file system, which may be slow. The file stays closed: closing it would give up SQLite's locks."""
    system = os.statvfs(path.parent)
    taken = sum(map(_size, (path, path.with_name(f"{path.name}-wal"))))
    return _Disk(taken, system.f_bavail * system.f_frsize)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
