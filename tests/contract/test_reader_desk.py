"""How a reader's desk uses the journal: one commit for the end of a batch and the bounds of the next one."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tests.support.clock import StandingClock
from tests.support.faults import Faults
from tests.support.journal import Scribe, change_segments
from tests.support.waiting import answered, eventually
from xbus import model
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.readers import FailingBatches, ReaderDesk, ReadingProgram, Settlement
from xbus.broker.back.readers.calls import BatchCall
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.configuration import BusSpec, ReaderSpec, RoleSpec, apply, make_plan, read_stored
from xbus.broker.journal.database.compression import DAMAGED
from xbus.broker.journal.fsck.progress import check_readers
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import read_catalog
from xbus.broker.journal.log.slices.items import read_slice
from xbus.broker.journal.log.slices.values import LAST_HASH, Place, Slice, SliceBounds, Stretch
from xbus.broker.journal.readers.parked import BatchFailure, list_parked_batches, read_parked_events, resume_batch
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.readers.status import list_moves, list_readers
from xbus.broker.journal.readers.steps import ActNote, ReaderAct, pass_idle
from xbus.clock import Clock, SystemClock
from xbus.config import BackSettings
from xbus.errors import JournalUnavailable, Refused
from xbus.rpc.bell import Bell
from xbus.rpc.messages import ClaimedBatchMap
from xbus.states import PresenceState

ENVELOPES = 6
LEASE = 10.0


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


class MeanwhileJournal:
    """A journal that does something else once between a step and the word about it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def step(self, row: int, errand: Callable[..., object], *arguments: object) -> object:
        found = await self._journal.step(row, errand, *arguments)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


class CountingReads:
    """A journal that counts the slices that are read in it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.slices = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    def are(self, number: int) -> bool:
        return self.slices == number

    async def read(self, statement: Callable[..., object], *arguments: object) -> object:
        self.slices += statement is read_slice
        return await self._journal.read(statement, *arguments)


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
    desk = ReaderDesk(entry, cast(Journal, counting), LogSlices(log), SystemClock(), failing)
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


async def desk_of(journal: Journal, clock: Clock) -> tuple[ReaderDesk, LogReader, ReadingProgram]:
    """The desk of the reader, with its log, and a program."""
    log = await log_of(journal)
    desk, program = await desk_on(journal, LogSlices(log), clock)
    return desk, log, program


async def log_of(journal: Journal) -> LogReader:
    """The log as it is now."""
    log = LogReader(journal, cast(Bell, None))
    await log.refresh()
    return log


async def desk_on(journal: Journal, slices: LogSlices, clock: Clock) -> tuple[ReaderDesk, ReadingProgram]:
    """The desk of the reader, and a program."""
    (entry,) = await journal.read(read_readers)
    failing = FailingBatches(BackSettings(), clock, Random(1))
    desk = ReaderDesk(entry, journal, slices, clock, failing)
    await desk.follow()
    (role_id,) = (await journal.read(read_catalog)).reader_roles
    return desk, ReadingProgram(uuid.uuid4(), role_id, "billing_1")


async def test_a_reader_that_has_read_all_lags_by_nothing(engine: sa.Engine, journal: Journal, scribe: Scribe) -> None:
    """All events have one key, so nothing falls into most of the ranges."""
    await journal.run(configure, 8)
    for _ in range(ENVELOPES):
        await scribe.put([b"x"], type_name="notes", ordering_key="client 7")
    clock = StandingClock()
    desk, log, program = await desk_of(journal, clock)
    done = None
    while (found := (await desk.read(program, BatchCall(0.0, 1, None, done), lambda: False))["batch"]) is not None:
        done = Settlement(found["range"], found["counter"], Place(*found["to"]))
    await desk.look()
    (status,) = await journal.read(list_readers)
    assert (status.lag, status.waits_since) == (0, None)
    assert {each.behind for each in status.ranges} == {0}
    assert {each.kind for each in await journal.read(list_moves, status.entry.id, 99)} == {"checkpoint"}
    await scribe.put([b"y"], type_name="notes", ordering_key="client 7")
    await log.refresh()
    (status,) = await journal.read(list_readers)
    assert status.lag == 1
    with engine.connect() as connection:
        assert [fault.cause for fault in check_readers(connection, lambda number: None)] == []
    await desk.leave(program)
    again, _, successor = await desk_of(journal, clock)
    batch = (await again.read(successor, BatchCall(0.0, 9, None, None), lambda: False))["batch"]
    assert batch is not None
    assert [event["position"] for event in batch["events"]] == [ENVELOPES + 1]


async def test_what_falls_into_a_range_meanwhile_is_not_passed(journal: Journal, scribe: Scribe) -> None:
    """1. A range passes what falls into others. 2. A batch of it is handed out. 3. The pass is written too late."""
    await journal.run(configure, 1)
    clock = StandingClock()
    desk, log, program = await desk_of(journal, clock)
    assert (await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False))["batch"] is None
    (passed,) = await journal.read(read_ranges)
    await scribe.put([b"x"], type_name="notes")
    await log.refresh()
    batch = (await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False))["batch"]
    assert batch is not None
    note = ActNote(uuid.uuid4(), clock.now(), "xbus", ReaderAct.PASS)
    await journal.run(pass_idle, [passed.passed(Place(99))], note)
    (found,) = await journal.read(read_ranges)
    assert (found.place, found.handed_out) == (Place(1), True)


async def test_a_program_that_was_lost_counts_as_none_when_its_lease_is_over(journal: Journal, scribe: Scribe) -> None:
    await journal.run(configure)
    clock = StandingClock()
    desk, _, program = await desk_of(journal, clock)
    await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False)
    await desk.look()
    (status,) = await journal.read(list_readers)
    assert (status.state, status.programs) == (PresenceState.PRESENT, 1)
    clock.go_on(LEASE + 1)
    await desk.look()
    (status,) = await journal.read(list_readers)
    assert (status.state, status.programs) == (PresenceState.ABSENT, 0)


async def test_a_program_that_left_while_the_database_was_away_counts_as_none(
    engine: sa.Engine, journal: Journal, scribe: Scribe
) -> None:
    await journal.run(configure)
    desk, _, program = await desk_of(journal, StandingClock())
    await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False)
    with Faults(engine).before_commit(), pytest.raises(JournalUnavailable):
        await desk.leave(program)
    await desk.look()
    (status,) = await journal.read(list_readers)
    assert (status.state, status.programs) == (PresenceState.ABSENT, 0)


CALLS_THAT_SETTLE: dict[str, Callable[[ReaderDesk, ReadingProgram, Settlement], Awaitable[object]]] = {
    "checkpoint": lambda desk, program, done: desk.settle(program, done),
    "read_batch": lambda desk, program, done: desk.read(program, BatchCall(0.0, 1, None, done), lambda: False),
    "note_callback": lambda desk, program, done: desk.fail(program, done, BatchFailure("callback_failed", "no")),
}


@pytest.mark.parametrize("verb", CALLS_THAT_SETTLE)
async def test_a_refused_settlement_of_a_program_without_ranges_keeps_none_from_others(
    journal: Journal, scribe: Scribe, verb: str
) -> None:
    await scribe.put([b"x"], type_name="notes")
    await journal.run(configure, 2)
    desk, _, program = await desk_of(journal, StandingClock())
    late = ReadingProgram(uuid.uuid4(), program.role_id, "billing_1")
    batch = (await desk.read(late, BatchCall(0.0, 1, None, None), lambda: False))["batch"]
    assert batch is not None
    done = Settlement(batch["range"], batch["counter"], Place(*batch["to"]))
    await desk.leave(late)
    assert (await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False))["ranges"] == 2
    await desk.leave(program)
    with pytest.raises(Refused) as refusal:
        await CALLS_THAT_SETTLE[verb](desk, late, done)
    assert refusal.value.code == "lease_lost"
    assert [*desk.sharing.programs] == []
    assert (await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False))["ranges"] == 2


async def test_a_refused_settlement_is_a_sign_of_life_of_a_program_with_other_ranges(
    journal: Journal, scribe: Scribe
) -> None:
    await scribe.put([b"x"], type_name="notes")
    await journal.run(configure, 2)
    clock = StandingClock()
    desk, _, program = await desk_of(journal, clock)
    await desk.read(program, BatchCall(0.0, 1, None, None), lambda: False)
    clock.go_on(LEASE - 1)
    with pytest.raises(Refused):
        await desk.settle(program, Settlement(99, 1, Place(1)))
    clock.go_on(LEASE - 1)
    await desk.look()
    assert len(desk.renew(program)["ranges"]) == 2


async def test_a_program_that_leaves_while_it_takes_a_range_keeps_none(journal: Journal, scribe: Scribe) -> None:
    """1. A call takes a range. 2. Its program leaves. 3. The desk hears that the journal has noted the range."""
    await scribe.put([b"x"], type_name="notes")
    await journal.run(configure, 2)
    between = MeanwhileJournal(journal)
    desk, leaving = await desk_on(cast(Journal, between), LogSlices(await log_of(journal)), StandingClock())
    between.meanwhile = lambda: desk.leave(leaving)
    answer = await desk.read(leaving, BatchCall(0.0, 1, None, None), lambda: False)
    assert (answer["ranges"], answer["batch"]) == (0, None)
    assert [*desk.sharing.programs] == []
    await desk.look()
    assert {each.owner for each in await journal.read(read_ranges)} == {None}
    other = ReadingProgram(uuid.uuid4(), leaving.role_id, "billing_1")
    assert (await desk.read(other, BatchCall(0.0, 1, None, None), lambda: False))["ranges"] == 2


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
    desk = ReaderDesk(entry, journal, LogSlices(log), SystemClock(), failing)
    await desk.follow()
    (role_id,) = (await journal.read(read_catalog)).reader_roles
    first, second = (ReadingProgram(uuid.uuid4(), role_id, "billing_1") for _ in range(2))
    batch = (await desk.read(first, BatchCall(0.0, 1, None, None), lambda: False))["batch"]
    assert batch is not None
    done = Settlement(batch["range"], batch["counter"], Place(*batch["to"]))
    waiting = asyncio.create_task(desk.read(second, BatchCall(30.0, 1, None, None), lambda: False))

    async def is_forgotten() -> bool:
        desk.renew(first)
        await desk.look()
        return second.id in desk.calls and second.id not in desk.sharing.programs

    await eventually(lambda: second.id in desk.sharing.programs, "it asks")
    desk.sharing.leases[batch["range"]].heir = None  # the first one has not settled for longer than it waits
    await answered(is_forgotten, "its lease is over, and it waits")
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

    slices = cast(LogSlices, GrowingSlices(LogSlices(log), grow))
    (entry,) = await journal.read(read_readers)
    failing = FailingBatches(BackSettings(), SystemClock(), Random(1))
    desk = ReaderDesk(entry, journal, slices, SystemClock(), failing)
    await desk.follow()
    (role_id,) = (await journal.read(read_catalog)).reader_roles
    program = ReadingProgram(uuid.uuid4(), role_id, "billing_1")
    batch = (await desk.read(program, BatchCall(30.0, 3, None, None), lambda: False))["batch"]
    assert batch is not None
    assert [event["position"] for event in batch["events"]] == [1, 2, 3]


@pytest.mark.parametrize("items", [1, 10_000], ids=["one by one", "together"])
@pytest.mark.parametrize("is_out", [False, True], ids=["before it was read", "while it is out"])
async def test_damaged_items_are_parked_and_their_range_goes_on(
    journal: Journal, scribe: Scribe, items: int, is_out: bool
) -> None:
    await journal.run(configure)
    for _ in range(ENVELOPES):
        await scribe.put([b"whole"], type_name="notes")
    desk, _, program = await desk_of(journal, SystemClock())

    async def change(data: bytes) -> None:
        found = sa.select(model.log_event.c.event_id).where(model.log_event.c.position == damaged)
        await journal.run(lambda c: change_segments(c, c.execute(found).scalars(), data=data))

    async def read(settled: Settlement | None) -> ClaimedBatchMap | None:
        return (await desk.read(program, BatchCall(0.0, items, None, settled), lambda: False))["batch"]

    async def read_all() -> set[int]:
        done, positions, empty = None, set[int](), 0
        # A call that parks something may have nothing to give.
        while empty < 2:
            found = await read(done)
            empty = 0 if found is not None else empty + 1
            done = None if found is None else Settlement(found["range"], found["counter"], Place(*found["to"]))
            positions |= set() if found is None else {event["position"] for event in found["events"]}
        return positions

    damaged, wanted = 3, {3}
    if is_out:
        out = await read(None)
        assert out is not None
        wanted = {event["position"] for event in out["events"]}
        damaged = max(wanted)
    await change(b"\xc4\x05worse")
    got = await read_all()
    (parked,) = await journal.read(list_parked_batches, reader="billing")
    assert (parked.subscription, parked.whose, parked.code) == (None, "billing", DAMAGED)
    lacking = {event.position for event in await journal.read(read_parked_events, parked)}
    assert lacking == wanted
    assert lacking | got == set(range(1, ENVELOPES + 1)), "the rest of its range was read"
    assert not lacking & got
    reason = RepairDecision("ada", "restored", SystemClock().now())
    await change(b"\xc4\x05whole")
    await journal.run(resume_batch, parked, reason)
    await desk.follow()
    assert await read_all() == lacking
    assert await journal.read(list_parked_batches) == []


async def test_the_next_batch_is_read_while_the_program_works_on_one(journal: Journal, scribe: Scribe) -> None:
    await journal.run(configure, 1)
    for _ in range(ENVELOPES):
        await scribe.put([b"x"], type_name="notes")
    reads = CountingReads(journal)
    slices = LogSlices(await log_of(cast(Journal, reads)))
    desk, program = await desk_on(journal, slices, SystemClock())
    done = None
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(slices.follow())
        # What ends the log is read again, as more may have come.
        for number in range(1, ENVELOPES):
            batch = (await desk.read(program, BatchCall(0.0, 1, None, done), lambda: False))["batch"]
            assert batch is not None
            assert [event["position"] for event in batch["events"]] == [number]
            assert reads.slices == number, "each slice is read once"
            done = Settlement(batch["range"], batch["counter"], Place(*batch["to"]))
            await eventually(partial(reads.are, number + 1), "the next slice is read before it is asked for")
        following.cancel()


async def test_what_was_read_ahead_at_the_end_of_the_log_is_read_again(journal: Journal, scribe: Scribe) -> None:
    await journal.run(configure, 1)
    for _ in range(2):
        await scribe.put([b"x"], type_name="notes")
    log = await log_of(journal)
    slices = LogSlices(log)
    (entry,) = await journal.read(read_readers)
    wanted = entry.read_types, [Stretch(0, LAST_HASH, Place(1))], SliceBounds(9, 1_000_000)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(slices.follow())
        await asyncio.sleep(0)
        slices.read_ahead(*wanted)
        assert len((await slices.read(*wanted)).events) == 2
        slices.read_ahead(*wanted)
        await scribe.put([b"y"], type_name="notes")
        await log.refresh()
        assert len((await slices.read(*wanted)).events) == 3
        following.cancel()
