"""Readers that lag further than they may; on every database."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.contract.test_readers import change
from tests.support.journal import NOW, Scribe, edit_sqlite
from xbus import model
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.readers import BatchCall, BehindReaders, ReaderDesks, ReadingProgram, Settlement
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.configuration import BusSpec, ReaderSpec, RoleSpec, read_stored
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog, read_catalog
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import list_moves, list_readers
from xbus.broker.journal.retention.needed import FOR_GOOD
from xbus.broker.journal.retention.reader_lags import find_behind
from xbus.clock import SystemClock
from xbus.config import BackSettings
from xbus.errors import Refused
from xbus.rpc.bell import Bell
from xbus.states import PresenceState
from xbus.supervision.health import Health

ENVELOPES = 6
TWO_HOURS_LATER = timedelta(hours=2)


class LaterClock(SystemClock):
    """Tells times after what the tests write."""

    def now(self) -> datetime:
        return NOW + TWO_HOURS_LATER


class ReaderAtWork:
    """A reader of notes with six envelopes before it, as the back serves it."""

    def __init__(self, journal: Journal, desks: ReaderDesks, health: Health, role_id: int) -> None:
        self.journal = journal
        self.desks = desks
        self.health = health
        self.keeper = BehindReaders(journal, desks, health, LaterClock())
        self.program = ReadingProgram(uuid.uuid4(), role_id, "billing_1")

    async def read(self, done: Any = None, items: int = 1) -> Any:
        settled = None if done is None else Settlement(done["range"], done["counter"], Place(*done["to"]))
        return (await self.desks.read(self.program, BatchCall(0.0, items, None, settled)))["batch"]

    async def limit(self, **limit: Any) -> None:
        await self.journal.run(change, spec(**limit))
        await self.desks.follow()

    async def place(self) -> Place:
        (status,) = await self.journal.read(list_readers)
        return status.place

    @property
    def troubles(self) -> list[tuple[str, str]]:
        return [(problem.code, problem.about) for problem in self.health.problems]


def spec(**limit: Any) -> BusSpec:
    return BusSpec(
        readers={"billing": ReaderSpec("billing", frozenset({"notes"}), ranges=1, start="oldest", **limit)},
        roles={"billing_1": RoleSpec("billing_1", "billing")},
    )


@pytest.fixture
async def at_work(journal: Journal, scribe: Scribe) -> AsyncIterator[ReaderAtWork]:
    await journal.run(change, spec())
    for _ in range(ENVELOPES):
        await scribe.put([b"x"])
    catalog: Catalog = await journal.read(read_catalog)
    log = LogReader(journal, cast(Bell, None))
    await log.refresh()
    async with asyncio.TaskGroup() as tasks:
        runtime = Runtime(SystemClock(), tasks)
        desks = ReaderDesks(journal, LogSlices(log), runtime, BackSettings(), lambda: catalog)
        await desks.follow()
        (role_id,) = catalog.reader_roles
        yield ReaderAtWork(journal, desks, Health("broker", LaterClock()), role_id)


async def test_a_number_and_an_age_are_limits(at_work: ReaderAtWork) -> None:
    found = at_work.journal.read
    now = LaterClock().now()
    assert await found(find_behind, now) == []
    await at_work.limit(max_lag=4)
    (behind,) = await found(find_behind, now)
    assert (behind.upto, behind.told) == (2, "it lacks some 6 envelopes, and max_lag allows 4")
    await at_work.limit(max_lag=timedelta(hours=1))
    (behind,) = await found(find_behind, now)
    assert behind.upto == ENVELOPES
    assert behind.told.startswith("the oldest event that it has not read was sealed 2020-02-29 12:00 UTC")
    await at_work.limit(max_lag=timedelta(hours=3))
    assert await found(find_behind, now) == []
    assert (await found(read_stored)).in_use.readers["billing"].max_lag == timedelta(hours=3)


@pytest.mark.parametrize("place", [1, 3])
async def test_a_moment_that_cannot_be_read_is_not_old(place: int, at_work: ReaderAtWork) -> None:
    """The first event is too old, and the other five are not."""
    now = LaterClock().now()
    fresh = sa.update(model.envelope).where(model.envelope.c.position > 1).values(closed_at=now)
    await at_work.journal.run(lambda connection: connection.execute(fresh))
    await at_work.limit(max_lag=timedelta(hours=1))
    await edit_sqlite(at_work.journal, "UPDATE envelope SET closed_at = '1.1.2026' WHERE position = ?", place)
    found = await at_work.journal.read(find_behind, now)
    assert [(behind.upto, behind.passes) for behind in found] == ([] if place == 1 else [(1, 1)])


async def test_a_lease_beyond_all_dates_is_for_ever(at_work: ReaderAtWork) -> None:
    await at_work.limit(lease=1e12)
    batch = await at_work.read()
    assert (await at_work.read(batch))["events"][0]["position"] == 2


async def test_an_alarm_lasts_as_long_as_the_lag(at_work: ReaderAtWork) -> None:
    await at_work.limit(max_lag=4)
    await at_work.keeper.look()
    assert at_work.troubles == [("reader_behind", "billing")]
    batch = await at_work.read(items=ENVELOPES)
    await at_work.read(batch)
    await at_work.keeper.look()
    assert at_work.health.healthy
    assert await at_work.place() == Place(ENVELOPES + 1)


async def test_a_reader_that_skips_goes_on_behind_what_is_too_old(at_work: ReaderAtWork) -> None:
    await at_work.limit(max_lag=4, when_behind="skip")
    await at_work.keeper.look()
    assert await at_work.place() == Place(3)
    assert at_work.keeper.skipped == {"billing": 2}
    assert at_work.health.healthy
    assert [event["position"] for event in (await at_work.read(items=10))["events"]] == [3, 4, 5, 6]
    (reader,) = await at_work.journal.read(read_readers)
    (skip,) = await at_work.journal.read(list_moves, reader.id, 10)
    assert (skip.kind, skip.who, skip.before, skip.after) == ("skip", "max_lag", Place(1), Place(3))
    assert skip.reason == "it lacks some 6 envelopes, and max_lag allows 4"


async def test_a_skip_waits_for_the_batch_of_a_program_that_reads(at_work: ReaderAtWork) -> None:
    await at_work.limit(max_lag=timedelta(hours=1), when_behind="skip")
    batch = await at_work.read(items=2)
    await at_work.keeper.look()
    assert await at_work.place() == Place(1)
    following = await at_work.read(batch)
    assert [event["position"] for event in following["events"]] == [3], "its checkpoint counts, and it reads on"
    await at_work.desks.settle(at_work.program, Settlement(following["range"], following["counter"], Place(4)))
    await at_work.keeper.look()
    assert await at_work.place() == Place(ENVELOPES + 1)
    assert at_work.keeper.skipped == {"billing": 3}


async def test_the_batch_of_a_program_that_is_gone_is_skipped_and_its_checkpoint_refused(at_work: ReaderAtWork) -> None:
    await at_work.limit(max_lag=timedelta(hours=1), when_behind="skip")
    batch = await at_work.read(items=2)
    desk = at_work.desks.desk("billing")
    assert desk is not None
    desk.sharing.expire(float("inf"))
    await at_work.keeper.look()
    assert await at_work.place() == Place(ENVELOPES + 1)
    with pytest.raises(Refused) as refusal:
        await at_work.read(batch)
    assert refusal.value.code == "lease_lost"


async def test_retention_waits_no_longer_for_a_detached_reader_until_it_has_caught_up(at_work: ReaderAtWork) -> None:
    await at_work.limit(max_lag=4, when_behind="detach")
    batch = await at_work.read()
    await at_work.keeper.look()
    assert at_work.troubles == [("reader_behind", "billing")], "its program reads: people are told"
    await at_work.desks.leave(at_work.program)
    await at_work.keeper.look()
    assert at_work.health.healthy
    assert await _state(at_work) is PresenceState.DETACHED
    assert await _needed(at_work) == []

    repeated = await at_work.read()
    assert (repeated["repeated"], repeated["to"]) == (True, batch["to"]), "it goes on where it stood"
    await at_work.read(repeated, items=4)
    await at_work.keeper.look()
    assert await _state(at_work) is PresenceState.DETACHED
    await at_work.limit(max_lag=5, when_behind="detach")
    await at_work.keeper.look()
    assert await _state(at_work) is PresenceState.PRESENT
    assert await _needed(at_work) == [2, 3, 4, 5, 6]


async def _state(at_work: ReaderAtWork) -> PresenceState:
    (status,) = await at_work.journal.read(list_readers)
    return status.state


async def _needed(at_work: ReaderAtWork) -> list[int]:
    def needed(connection: sa.Connection) -> list[int]:
        envelope = model.envelope.c
        ids = connection.execute(sa.select(envelope.id)).scalars().all()
        kept = connection.execute(FOR_GOOD[0], {"ids": ids}).scalars().all()
        return sorted(connection.execute(sa.select(envelope.position).where(envelope.id.in_(kept))).scalars())

    return await at_work.journal.read(needed)


async def test_what_makes_no_sense_is_refused(journal: Journal) -> None:
    wrong = spec(when_behind="skip")
    assert await journal.run(change, wrong) == [
        'reader/billing/when_behind: when_behind = "skip" needs max_lag, which says what behind is'
    ]
    of_role = BusSpec(readers=spec().readers, roles={"billing_1": RoleSpec("billing_1", "billing", max_lag=5)})
    assert await journal.run(change, of_role) == [
        "role/billing_1/max_lag: how far a reader lags is a matter of all its roles: "
        'set max_lag of the reader "billing"'
    ]
