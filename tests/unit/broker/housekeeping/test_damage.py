"""When the slow look begins, how fast it goes, and when it begins again."""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import cast
from unittest.mock import MagicMock
from uuid import UUID

import pytest

from xbus.broker.housekeeping.damage import UNREAD, DamageKeeper
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.damage import BEGINNING, DamagePage, SegmentPlace, find_damage
from xbus.broker.parts.back import BackPart
from xbus.errors import JournalError, JournalUnavailable
from xbus.supervision.health import Health
from xbus.testing.loop import VirtualClock, VirtualLoop

MINUTE, HOUR, DAY = 60.0, 3600.0, 24 * 3600.0
PAGES = 100


class PagesDouble:
    """A journal of some pages that takes no time to read, and tells when each was read."""

    def __init__(
        self, loop: VirtualLoop, errors: Mapping[int, JournalError], until: float, outage: JournalUnavailable | None
    ) -> None:
        self._loop = loop
        self._errors = errors
        self._until = until
        self.outage = outage
        self.read_at: list[float] = []

    async def read(self, find: Callable[..., object], place: SegmentPlace) -> DamagePage | None:
        number = place[0].int + 1
        if find is not find_damage or number > PAGES:
            return None
        self.read_at.append(self._loop.time())
        if number in self._errors and self._loop.time() < self._until:
            raise self._errors[number]
        return DamagePage((UUID(int=number), *BEGINNING[1:]), ())


def looked_at(seconds: float) -> list[float]:
    """The moments at which pages are read in the first time of a broker, at its own pace."""
    return watched(seconds)[0]


def watched(
    seconds: float,
    errors: Mapping[int, JournalError] = MappingProxyType({}),
    until: float = math.inf,
    outage: JournalUnavailable | None = None,
) -> tuple[list[float], Health]:
    """The same, and what health tells then, where some pages fail until a moment."""
    loop = VirtualLoop()
    clock, journal = VirtualClock(loop), PagesDouble(loop, errors, until, outage)
    health = Health("broker", clock)
    keeper = DamageKeeper(cast(Journal, journal), clock, health)

    async def watch() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await keeper.watch()

    loop.run_until_complete(watch())
    loop.close()
    return journal.read_at, health


def test_a_broker_serves_for_a_minute_before_it_looks() -> None:
    first, *_ = looked_at(2 * MINUTE)
    assert MINUTE <= first < 1.1 * MINUTE


def test_a_look_leaves_the_disk_to_others_and_is_done_in_hours() -> None:
    """Its pages have 1 MiB: a journal of 100 GB takes seven hours."""
    times = looked_at(HOUR)
    assert len(times) == PAGES
    assert 6 * HOUR < (times[-1] - times[0]) / (PAGES - 1) * 100 * 1000 < 8 * HOUR


def test_all_is_looked_at_again_each_week() -> None:
    times = looked_at(15 * DAY)
    assert len(times) == 3 * PAGES
    assert [round((time - times[0]) / DAY, 1) for time in times[::PAGES]] == [0.0, 7.0, 14.0]


@pytest.mark.parametrize("error", [JournalUnavailable("could not read block 7 at 10.1.2.3"), JournalError("no number")])
def test_a_page_that_can_not_be_read_is_told_until_it_can(error: JournalError) -> None:
    """As one of PostgreSQL without its checksum. The segments behind it can't be found."""
    _, health = watched(HOUR, {3: error})
    (problem,) = health.problems
    assert (problem.code, problem.about) == (DAMAGED, UNREAD)
    assert "10.1.2.3" not in problem.cause
    times, health = watched(HOUR, {3: error}, until=HOUR / 2)
    assert health.problems == []
    assert len(times) > PAGES


def test_an_outage_is_no_damage() -> None:
    _, health = watched(HOUR, {3: JournalUnavailable("away")}, outage=JournalUnavailable("away"))
    assert health.problems == []


def test_the_back_looks_from_its_start_on() -> None:
    part = MagicMock()
    works = dict(BackPart._background(part))
    assert "DamageKeeper.watch" in repr(works["damage of items"])
    (met,) = part._shared.journal.on_damage.call_args.args
    assert met.__qualname__ == "DamageKeeper.met"
    for work in works.values():
        work.close()
