"""The journal is looked at seldom, however often somebody asks for metrics."""

import asyncio
from typing import cast

import pytest

from tests.support.clock import StandingClock
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.operations.figures import JournalFigures
from xbus.broker.metrics.of_journal import FRESH_SECONDS, PAUSE_SHARE, JournalLook
from xbus.errors import JournalUnavailable


class SlowJournal:
    """Takes its time for a look, in which the clock goes on."""

    def __init__(self, clock: StandingClock) -> None:
        self.looks = 0
        self.seconds = 0.0
        self.error: Exception | None = None
        self._clock = clock

    async def read(self, _: object) -> JournalFigures:
        self.looks += 1
        await asyncio.sleep(0)
        self._clock.go_on(self.seconds)
        if self.error is not None:
            raise self.error
        return JournalFigures([], 100 * self.looks, None)


def made() -> tuple[StandingClock, SlowJournal, JournalLook]:
    clock = StandingClock()
    journal = SlowJournal(clock)
    return clock, journal, JournalLook(cast(Journal, journal), clock, None, 0)


def figure(look: JournalLook, name: str) -> float | None:
    """The only value of a family; None without any."""
    samples = next(family.samples for family in look.families() if family.name == name)
    return samples[0][1] if samples else None


async def test_many_who_ask_at_once_share_a_look() -> None:
    clock, journal, look = made()
    assert figure(look, "xbus_journal_item_bytes") is None
    await asyncio.gather(*(look.refresh() for _ in range(100)))
    await look.refresh()
    assert (journal.looks, figure(look, "xbus_journal_item_bytes")) == (1, 100)
    clock.go_on(FRESH_SECONDS)
    await look.refresh()
    assert (journal.looks, figure(look, "xbus_journal_item_bytes")) == (2, 200)


async def test_a_slow_look_is_followed_by_a_long_pause() -> None:
    clock, journal, look = made()
    journal.seconds = 2
    await look.refresh()
    clock.go_on(2 * PAUSE_SHARE - 1)
    await look.refresh()
    assert journal.looks == 1
    clock.go_on(1)
    await look.refresh()
    assert journal.looks == 2


@pytest.mark.parametrize("error", [JournalUnavailable("away", "wait"), RuntimeError("a fault of ours")])
async def test_figures_of_a_database_that_is_away_stay_and_tell_their_age(error: Exception) -> None:
    clock, journal, look = made()
    await look.refresh()
    journal.error = error
    clock.go_on(60)
    await look.refresh()
    assert (figure(look, "xbus_journal_item_bytes"), figure(look, "xbus_journal_look_age_seconds")) == (100, 60)


async def test_nobody_waits_long_for_a_silent_database() -> None:
    clock, journal, look = made()
    silent = asyncio.Event()

    async def read(_: object) -> JournalFigures:
        await silent.wait()
        return JournalFigures([], 1, None)

    journal.read = read  # type: ignore[method-assign]
    look = JournalLook(cast(Journal, journal), clock, None, 0, wait_seconds=0)
    await look.refresh()
    assert figure(look, "xbus_journal_item_bytes") is None
    silent.set()
    await asyncio.sleep(0)
    await look.refresh()
    assert figure(look, "xbus_journal_item_bytes") == 1
