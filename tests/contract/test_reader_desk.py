"""How a reader's desk uses the journal: one commit for the end of a batch and the bounds of the next one."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import sqlalchemy as sa

from tests.support.journal import Scribe
from tests.support.waiting import eventually
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.readers import FailingBatches, ReaderDesk, ReadingProgram, Settlement
from xbus.broker.back.readers.calls import BatchCall
from xbus.broker.journal.configuration import BusSpec, ReaderSpec, RoleSpec, apply, make_plan, read_stored
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.slices import Place, Slice
from xbus.broker.journal.readers import read_readers
from xbus.clock import SystemClock
from xbus.config import BackSettings
from xbus.rpc.bell import Bell

ENVELOPES = 6


class CountingJournal:
    """A journal that counts the transactions that write."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.commits = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def run(self, errand: Callable[..., object], *arguments: object) -> object:
        self.commits += 1
        return await self._journal.run(errand, *arguments)

    async def step(self, row: int, errand: Callable[..., object], *arguments: object) -> object:
        self.commits += 1
        return await self._journal.step(row, errand, *arguments)


class GrowingSlices:
    """Slices of a log that grows while it is read for the first time."""

    def __init__(self, slices: LogSlices, grow: Callable[[], Awaitable[None]]) -> None:
        self._slices = slices
        self._grow = grow
        self._reads = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._slices, name)

    async def read(self, *arguments: Any) -> Slice:
        found = await self._slices.read(*arguments)
        self._reads += 1
        if self._reads == 1:
            await self._grow()
        return found


def configure(connection: sa.Connection, ranges: int = 2, lease: float = 10.0, batch_wait: float = 0.0) -> None:
    stored = read_stored(connection)
    wanted = BusSpec(
        event_types={"notes": stored.in_use.event_types["notes"]},
        readers={
            "billing": ReaderSpec("billing", frozenset({"notes"}), ranges, lease, start="oldest", batch_wait=batch_wait)
        },
        roles={"billing_1": RoleSpec("billing_1", "billing")},
    )
    plan = make_plan(stored, wanted)
    assert not plan.problems, plan.problems
    apply(connection, plan, SystemClock().now())


async def test_the_end_of_a_batch_and_the_bounds_of_the_next_are_one_commit(journal: Journal, scribe: Scribe) -> None:
    await journal.run(configure)
    for _ in range(ENVELOPES):
        await scribe.put([b"x"], type_name="notes")
    counting = CountingJournal(journal)
    log = LogReader(journal, cast(Bell, None))
    await log.refresh()
    (entry,) = await journal.read(read_readers)
    failing = FailingBatches(BackSettings(), SystemClock(), Random(1))
    desk = ReaderDesk(entry, cast(Journal, counting), LogSlices(journal, log), SystemClock(), failing)
    await desk.follow()
    (role_id,) = (await journal.read(read_catalog)).reader_roles
    program = ReadingProgram(uuid.uuid4(), role_id, "billing_1")

    async def next_batch(done: Any = None) -> Any:
        settled = None if done is None else Settlement(done["range"], done["counter"], Place(*done["to"]))
        return (await desk.read(program, BatchCall(0.0, 1, None, settled), lambda: False))["batch"]

    batch = await next_batch()
    positions = [batch["events"][0]["position"]]
    while True:
        before = counting.commits
        following = await next_batch(batch)
        assert counting.commits - before == 1
        if following is None:
            break
        batch = following
        positions.append(batch["events"][0]["position"])
    assert sorted(positions) == list(range(1, ENVELOPES + 1))
    assert await next_batch(batch) is None, "a repeat settles nothing more"


async def test_a_program_without_a_range_waits_in_one_call_and_calls_again_before_it_gets_one(
    journal: Journal, scribe: Scribe
) -> None:
    """It counts as gone while it waits: a call of one that has died meanwhile must not keep a range from others."""
    await journal.run(configure, 1, 1.0)
    await scribe.put([b"x"], type_name="notes")
    log = LogReader(journal, cast(Bell, None))
    await log.refresh()
    (entry,) = await journal.read(read_readers)
    failing = FailingBatches(BackSettings(), SystemClock(), Random(1))
    desk = ReaderDesk(entry, journal, LogSlices(journal, log), SystemClock(), failing)
    await desk.follow()
    (role_id,) = (await journal.read(read_catalog)).reader_roles
    first, second = (ReadingProgram(uuid.uuid4(), role_id, "billing_1") for _ in range(2))
    batch = (await desk.read(first, BatchCall(0.0, 1, None, None), lambda: False))["batch"]
    assert batch is not None
    done = Settlement(batch["range"], batch["counter"], Place(*batch["to"]))
    waiting = asyncio.create_task(desk.read(second, BatchCall(30.0, 1, None, None), lambda: False))

    def is_forgotten() -> bool:
        desk.renew(first)
        desk.look()
        return second.id in desk.calls and second.id not in desk.sharing.programs

    await eventually(lambda: second.id in desk.sharing.programs, "it asks")
    desk.sharing.leases[batch["range"]].heir = None  # the first one has not settled for longer than it waits
    await eventually(is_forgotten, "its lease is over, and it waits")
    assert not waiting.done()

    await desk.settle(first, done)
    await scribe.put([b"y"], type_name="notes")
    await log.refresh()
    await desk.leave(first)
    assert (await waiting)["batch"] is None
    following = (await desk.read(second, BatchCall(0.0, 1, None, None), lambda: False))["batch"]
    assert following is not None
    assert [event["position"] for event in following["events"]] == [2]


async def test_a_small_batch_waits_for_what_comes_while_it_is_read(journal: Journal, scribe: Scribe) -> None:
    await journal.run(configure, 1, 10.0, 60.0)
    await scribe.put([b"x"], type_name="notes")
    log = LogReader(journal, cast(Bell, None))
    await log.refresh()

    async def grow() -> None:
        for _ in range(2):
            await scribe.put([b"y"], type_name="notes")

    slices = cast(LogSlices, GrowingSlices(LogSlices(journal, log), grow))
    (entry,) = await journal.read(read_readers)
    failing = FailingBatches(BackSettings(), SystemClock(), Random(1))
    desk = ReaderDesk(entry, journal, slices, SystemClock(), failing)
    await desk.follow()
    (role_id,) = (await journal.read(read_catalog)).reader_roles
    program = ReadingProgram(uuid.uuid4(), role_id, "billing_1")
    batch = (await desk.read(program, BatchCall(30.0, 3, None, None), lambda: False))["batch"]
    assert batch is not None
    assert [event["position"] for event in batch["events"]] == [1, 2, 3]
