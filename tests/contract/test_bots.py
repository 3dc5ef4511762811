"""Runs of bots: fired once for each slot, given to one runner at a time, tried again, slowed down; in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import cast
from uuid import UUID

import pytest
import sqlalchemy as sa

from tests.support.journal import Scribe, edit_sqlite
from xbus import model
from xbus.admin import bus_file
from xbus.broker.back.bots import Bots
from xbus.broker.back.bots.batches import BotBatches
from xbus.broker.back.bots.claims import LEASE_SECONDS, Claims, Given
from xbus.broker.back.bots.firing import LOOK_AGAIN_SECONDS, Firing
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.readers import FailingBatches, ReaderDesk
from xbus.broker.configuration import Configuration
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.commit.statements.bots import KEPT_RUNS, SLOWED_AFTER
from xbus.broker.journal.configuration import apply, make_plan, read_stored
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import TICKETS, has_ticket, read_progress
from xbus.broker.journal.log.catalog import Catalog, read_catalog
from xbus.broker.journal.log.sessions import read_sessions
from xbus.broker.journal.readers import people
from xbus.broker.journal.readers.ranges import read_ranges
from xbus.broker.journal.readers.settings import read_readers
from xbus.broker.journal.retention.pruning import prune_cancelled
from xbus.broker.journal.writes import Cancel, Seal, StartEnvelope, StartSession
from xbus.broker.journal.writes.bots import EndRun, FireSlots, LoseRuns, RenewRuns, RunFailure, run_key
from xbus.broker.logins import Credentials
from xbus.broker.sessions import SessionLifetimes, Sessions
from xbus.config import BackSettings
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused
from xbus.headers import EventTags
from xbus.ids import Ids, keyed_envelope_id, token_hash
from xbus.passwords import Passwords
from xbus.rpc.bell import Bell
from xbus.rpc.codec import unpack_items
from xbus.slots import Schedule
from xbus.states import BotRunState
from xbus.supervision.health import Health

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""The day before the clock is set forward."""

BUS = """\
[[service]]
name = "runners"
kind = "runner"

[[role]]
login = "runner_1"
service = "runners"

[[event_type]]
name = "orders"

[[emitter_profile]]
name = "shops"
event_types = ["orders"]

[[emitter]]
login = "north"
profile = "shops"
"""

PROGRAMS = [UUID(int=number) for number in (1, 2, 3)]


class MovingClock:
    """Shows what the test says."""

    def __init__(self) -> None:
        self.at = NOW
        self._behind = timedelta()

    def set_back(self, by: timedelta) -> None:
        """Set the wall clock back; no time passes."""
        self.at -= by
        self._behind += by

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at + self._behind).timestamp()


class Broker:
    """A broker's bots, without its tasks: the test says when it looks."""

    def __init__(self, journal: Journal, catalog: Catalog, clock: MovingClock) -> None:
        self.clock = clock
        self.failing = FailingBatches(BackSettings(), clock, Random(1))
        self.journal = journal
        self.catalog = catalog
        self.claims = Claims(journal, lambda: catalog, clock, Ids(clock))
        self.firing = Firing(journal, lambda: catalog.bots, clock, self.claims.stir)

    @property
    def runner(self) -> int:
        return next(iter(self.catalog.runners))

    async def look(self) -> None:
        """Fire what is due, as after a restart: nothing is remembered."""
        self.firing = Firing(self.journal, lambda: self.catalog.bots, self.clock, self.claims.stir)
        await self.firing.follow()
        await self.firing.fire_due()

    async def claim(self, program: UUID = PROGRAMS[0]) -> Given | None:
        asked = asyncio.ensure_future(self.claims.wait(self.runner, program, 0.0))
        await asyncio.sleep(0)
        await self.claims.give()
        return await asked

    async def end(
        self, given: Given, program: UUID = PROGRAMS[0], *, code: str = "", role_id: int | None = None
    ) -> bool:
        failure = RunFailure(code, "it did not work") if code else None
        return await self.journal.write(
            EndRun(
                given.run.id,
                role_id or self.runner,
                program,
                token_hash(given.ticket),
                failure,
                "said",
                self.clock.now(),
            )
        )


def add_bots(connection: sa.Connection, bots: str) -> None:
    read = bus_file.read((BUS + bots).encode())
    plan = make_plan(read_stored(connection), read.bus)
    assert not [*read.problems, *plan.problems]
    apply(connection, plan, NOW)


async def broker_with(journal: Journal, clock: MovingClock, bots: str) -> Broker:
    await journal.run(add_bots, bots)
    return Broker(journal, await journal.read(read_catalog), clock)


def bot(name: str = "report", **fields: object) -> str:
    values = {"name": f'"{name}"', "call": '"reports:nightly"', "cron": '"0 * * * *"', **fields}
    return "[[bot]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


def runs(connection: sa.Connection) -> Sequence[sa.Row[tuple[object, ...]]]:
    return connection.execute(sa.select(model.bot_run).order_by(model.bot_run.c.id)).all()


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


async def test_a_run_is_fired_given_and_ended(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot(emits="[]"))
    await broker.look()
    assert await broker.claim() is None
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    assert (given.run.attempt, given.run.slot, given.bot.name) == (1, NOW + timedelta(hours=1), "report")
    assert await journal.read(has_ticket, given.bot.emitter_id, token_hash(given.ticket))
    assert not await journal.read(has_ticket, given.bot.emitter_id, token_hash("another"))
    assert await broker.claim(PROGRAMS[1]) is None
    assert not await broker.end(given, PROGRAMS[1])
    assert await broker.end(given)
    assert not await broker.end(given)
    assert not await journal.read(has_ticket, given.bot.emitter_id, token_hash(given.ticket))
    (run,) = await journal.read(runs)
    assert (run.state, run.log, run.lease_until) == (BotRunState.DONE, "said", None)


@pytest.mark.parametrize("end", ["well", "failed", "lost"])
async def test_the_sessions_of_an_attempt_end_with_it(journal: Journal, clock: MovingClock, end: str) -> None:
    broker = await broker_with(journal, clock, bot(emits="[]"))
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None

    def sessions() -> Sessions:
        credentials = Credentials(journal, "emitter", Passwords(), clock)
        return Sessions(journal, credentials, clock=clock, ids=Ids(clock), lifetimes=SessionLifetimes(10_000))

    front, login = sessions(), next(each.login for each in broker.catalog.emitters.values() if each.kind == "bot")
    token = await front.login(login, given.ticket)
    restarted = sessions()
    await restarted.restore()
    for each in (front, restarted):
        await each.end_with_runs()
        assert each.owner(token) == given.bot.emitter_id

    if end == "lost":
        clock.at += timedelta(seconds=LEASE_SECONDS)
        assert await journal.write(LoseRuns(clock.at)) == 1
    else:
        assert await broker.end(given, code="" if end == "well" else "broken")
    for each in (front, restarted):
        await each.end_with_runs()
        assert not each.knows(token)
    assert await journal.read(read_sessions, of_roles=False) == []
    late = StartSession(b"t" * 32, given.bot.emitter_id, None, clock.at, TICKETS, None, token_hash(given.ticket))
    assert not await journal.write(late), "a login that began before the end comes too late"


async def test_two_brokers_fire_a_slot_once(journal: Journal, clock: MovingClock) -> None:
    first = await broker_with(journal, clock, bot(missed='"all"'))
    second = Broker(journal, first.catalog, clock)
    clock.at += timedelta(hours=3)
    await asyncio.gather(first.look(), second.look())
    assert len(await journal.read(runs)) == 3
    slot = NOW + timedelta(hours=4)
    written = [journal.write(FireSlots(1, [slot], slot, slot)) for _ in range(3)]
    assert sorted(await asyncio.gather(*written)) == [False, False, True]


@pytest.mark.parametrize("column", ["slots_until", "slowed_until"])
@pytest.mark.parametrize("moment", ["11/27/2026", "never"])
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_bot_whose_progress_cannot_be_read_fires_nothing(
    column: str, moment: str, is_running: bool, journal: Journal, clock: MovingClock
) -> None:
    broker = await broker_with(journal, clock, bot(missed='"all"') + bot("other", missed='"all"'))
    await broker.look()
    await edit_sqlite(journal, f"UPDATE bot_state SET {column} = ? WHERE bot_id = 1", moment)
    clock.at += timedelta(hours=3)
    if is_running:
        await broker.firing.fire_due()
    for _ in range(2):
        await broker.look()
    assert [run.bot_id for run in await journal.read(runs)] == [2, 2, 2]
    assert broker.firing._timetable.next == clock.at + timedelta(hours=1)


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_bot_goes_on_once_its_progress_can_be_read_again(
    is_running: bool, journal: Journal, clock: MovingClock
) -> None:
    broker = await broker_with(journal, clock, bot(missed='"all"'))
    await broker.look()
    (kept,) = [progress.slots_until for progress in (await journal.read(read_progress)).values()]
    await edit_sqlite(journal, "UPDATE bot_state SET slots_until = 'never' WHERE bot_id = 1")
    clock.at += timedelta(hours=3)
    if is_running:
        await broker.firing.fire_due()
    else:
        await broker.look()
    await journal.run(lambda connection: connection.execute(sa.update(model.bot_state).values(slots_until=kept)))
    clock.at += timedelta(seconds=LOOK_AGAIN_SECONDS)
    await broker.firing.fire_due()
    assert [run.bot_id for run in await journal.read(runs)] == [1, 1, 1]


async def broker_after_repair(journal: Journal, clock: MovingClock, bots: str) -> Broker:
    """Give a broker that found the progress of the first bot unreadable, which was mended right behind its look."""
    broker = await broker_with(journal, clock, bots)
    await broker.look()
    kept = (await journal.read(read_progress))[1].slots_until
    await edit_sqlite(journal, "UPDATE bot_state SET slots_until = 'never' WHERE bot_id = 1")
    clock.at += timedelta(hours=3)
    await broker.firing.follow()
    await journal.run(lambda connection: connection.execute(sa.update(model.bot_state).values(slots_until=kept)))
    return broker


async def test_another_bot_that_cannot_be_read_puts_no_look_off(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_after_repair(journal, clock, bot(missed='"all"') + bot("other", missed='"all"'))
    await edit_sqlite(journal, "UPDATE bot_state SET slots_until = 'never' WHERE bot_id = 2")
    for _ in range(2):
        clock.at += timedelta(seconds=LOOK_AGAIN_SECONDS / 2)
        await broker.firing.fire_due()
    assert [run.bot_id for run in await journal.read(runs)] == [1, 1, 1]


async def test_a_bot_goes_on_though_the_wall_clock_is_set_back(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_after_repair(journal, clock, bot(missed='"all"'))
    clock.set_back(timedelta(hours=1))
    clock.at += timedelta(seconds=LOOK_AGAIN_SECONDS)
    await broker.firing.fire_due()
    assert [run.bot_id for run in await journal.read(runs)] == [1, 1]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_was_ahead_for_a_while_silences_no_bot(
    journal: Journal, clock: MovingClock, restarted: bool
) -> None:
    broker = await broker_with(journal, clock, bot(missed='"skip"'))
    await broker.look()
    clock.at += timedelta(days=365)
    await broker.firing.fire_due()
    clock.set_back(timedelta(days=365))
    fired = len(await journal.read(runs))
    for _ in range(2):
        clock.at += timedelta(hours=1)
        await (broker.look() if restarted else broker.firing.fire_due())
        # Another look at the same moment fires nothing twice.
        await broker.look()
    slots = [run.slot for run in (await journal.read(runs))[fired:]]
    assert slots == [NOW + timedelta(hours=1), NOW + timedelta(hours=2)]


async def test_so_many_runs_are_under_way_as_the_bot_has_instances(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot(missed='"all"', instances=2))
    clock.at += timedelta(hours=3)
    await broker.look()
    given = [await broker.claim(program) for program in PROGRAMS]
    assert [None if each is None else each.run.slot for each in given] == [
        NOW + timedelta(hours=1),
        NOW + timedelta(hours=2),
        None,
    ]


async def test_a_failed_run_is_tried_again_later_until_it_has_failed(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot(attempts=2))
    clock.at += timedelta(hours=1)
    await broker.look()
    for attempt in (1, 2):
        given = await broker.claim()
        assert given is not None
        assert given.run.attempt == attempt
        await broker.end(given, code="run_failed")
        assert await broker.claim() is None
        clock.at += timedelta(minutes=6)
    (run,) = await journal.read(runs)
    assert (run.state, run.attempts, run.code, run.error) == ("failed", 2, "run_failed", "it did not work")


async def test_a_program_that_has_logged_out_gets_no_run(journal: Journal, clock: MovingClock) -> None:
    """Its call still waits, as that of a runner that was stopped."""
    broker = await broker_with(journal, clock, bot())
    is_logged_in = True
    left = asyncio.ensure_future(broker.claims.wait(broker.runner, PROGRAMS[0], 60.0, lambda: is_logged_in))
    await asyncio.sleep(0)
    is_logged_in = False
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim(PROGRAMS[1])
    assert given is not None
    assert given.run.attempt == 1
    left.cancel()


async def test_a_runner_that_is_lost_loses_its_run(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot())
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    clock.at += timedelta(seconds=LEASE_SECONDS - 1)
    lease = clock.at + timedelta(seconds=LEASE_SECONDS)
    assert await journal.write(RenewRuns(broker.runner, PROGRAMS[0], [given.run.id, 10**9], lease)) == [given.run.id]
    assert await journal.write(RenewRuns(broker.runner, PROGRAMS[1], [given.run.id], lease)) == []
    assert await journal.write(RenewRuns(broker.runner, PROGRAMS[0], [], lease)) == []
    assert await journal.write(LoseRuns(clock.at)) == 0
    assert await journal.write(LoseRuns(lease)) == 1
    assert not await broker.end(given)
    clock.at = lease + timedelta(minutes=1)
    again = await broker.claim(PROGRAMS[1])
    assert again is not None
    assert (again.run.id, again.run.attempt) == (given.run.id, 2)


async def test_a_repeated_end_of_a_probe_does_not_end_the_next_one(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot(attempts=SLOWED_AFTER + 2))
    clock.at += timedelta(hours=1)
    await broker.look()

    async def claimed() -> Given:
        while (given := await broker.claim()) is None:
            clock.at += timedelta(seconds=10)
        return given

    for _ in range(SLOWED_AFTER):
        await broker.end(await claimed(), code="run_failed")
    probe = await claimed()
    assert await broker.end(probe, code="run_failed")
    next_probe = await claimed()
    assert next_probe.run.attempt == probe.run.attempt
    assert not await broker.end(probe, code="run_failed")
    assert await broker.end(next_probe)


async def test_a_bot_that_fails_is_slowed_down_probed_and_recovers(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot(attempts=SLOWED_AFTER))
    clock.at += timedelta(hours=1)
    await broker.look()

    async def attempt(code: str) -> None:
        given = await broker.claim()
        while given is None:
            clock.at += timedelta(seconds=10)
            given = await broker.claim()
        await broker.end(given, code=code)

    for _ in range(SLOWED_AFTER - 1):
        await attempt("run_failed")
    began = clock.at
    await attempt("run_failed")
    # The last attempt has failed with it, so the next slot is the probe.
    assert [run.state for run in await journal.read(runs)] == ["failed"]
    clock.at = began + timedelta(hours=1)
    await broker.look()
    await attempt("run_failed")
    began = clock.at
    await attempt("run_failed")
    assert clock.at - began >= timedelta(minutes=2)
    (_, probed) = await journal.read(runs)
    assert probed.attempts == 0
    await attempt("")
    (state,) = await journal.read(lambda connection: connection.execute(sa.select(model.bot_state)).all())
    assert (state.failures, state.slowed_until) == (0, None)
    moves = await journal.read(lambda connection: connection.execute(sa.select(model.history.c.move)).scalars().all())
    assert [move for move in moves if move in ("slowed", "recovered")] == ["slowed", "recovered"]


async def slowed(journal: Journal, clock: MovingClock, missed: str = "once") -> Broker:
    """A bot with a slot each second, of which ten runs have failed."""
    broker = await broker_with(journal, clock, bot(cron='"* * * * * *"', attempts=1, missed=f'"{missed}"'))
    for _ in range(SLOWED_AFTER):
        clock.at += timedelta(seconds=1)
        await broker.look()
        given = await broker.claim()
        assert given is not None
        await broker.end(given, code="run_failed")
    return broker


@pytest.mark.parametrize(("missed", "most"), [("once", 1), ("skip", 1), ("all", 1000)])
async def test_slots_of_a_slowed_bot_do_not_pile_up(
    journal: Journal, clock: MovingClock, missed: str, most: int
) -> None:
    broker = await slowed(journal, clock, missed)
    for _ in range(200):
        clock.at += timedelta(seconds=1)
        await broker.look()
    due = [run for run in await journal.read(runs) if run.state in ("due", "running")]
    assert (0 < len(due) <= most, missed == "all") == (True, len(due) > 100)
    given = await broker.claim()
    assert given is not None
    await broker.end(given)
    clock.at += timedelta(seconds=2)
    await broker.look()
    since = clock.at - timedelta(seconds=2)
    assert len([run for run in await journal.read(runs) if run.slot is not None and run.slot > since]) == 2


async def test_health_tells_of_slowed_bots(journal: Journal, clock: MovingClock) -> None:
    broker = await slowed(journal, clock)
    health = Health("back", clock)
    configuration = Configuration(journal)
    await configuration.refresh()
    bots = Bots(journal, configuration, clock, Ids(clock), lambda key: None, health)
    await bots.look()
    assert [(each.code, each.about) for each in health.problems] == [("bot_slowed", "report")]
    clock.at += timedelta(minutes=2)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    await broker.end(given)
    await bots.look()
    assert health.healthy


async def test_old_runs_are_forgotten_and_their_slots_stay_decided(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot(missed='"all"'))

    def fill(connection: sa.Connection) -> None:
        rows = [
            {"bot_id": 1, "state": "done", "due_at": NOW, "attempts": 1, "slot": NOW - timedelta(hours=number)}
            for number in range(KEPT_RUNS + 5, 0, -1)
        ]
        connection.execute(sa.insert(model.bot_run), rows)

    await journal.run(fill)
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    await broker.end(given)
    found = await journal.read(runs)
    assert (len(found), found[-1].id) == (KEPT_RUNS, given.run.id)
    await broker.look()
    assert len(await journal.read(runs)) == KEPT_RUNS


@pytest.mark.long
@pytest.mark.parametrize(
    "begin",
    [NOW, pytest.param(datetime(2026, 10, 24, 12, tzinfo=UTC), marks=pytest.mark.slow)],
    ids=["spring", "autumn"],
)
async def test_each_slot_once_whatever_dies(journal: Journal, clock: MovingClock, begin: datetime) -> None:
    """Two brokers and three runners, each of which may die at any moment, over a change of the clock."""
    crons = {"nightly": "30 2 * * *", "often": "*/20 * * * *", "evenly": "15 */2 * * *"}
    zone = '"Europe/Paris"'
    bots = "".join(
        bot(name, cron=f'"{cron}"', timezone=zone, missed='"all"', attempts=1000, instances=2)
        for name, cron in crons.items()
    )
    clock.at = NOW
    first = await broker_with(journal, clock, bots)
    await journal.run(lambda connection: connection.execute(sa.update(model.bot_state).values(slots_until=begin)))
    clock.at = begin
    brokers = [first, Broker(journal, first.catalog, clock)]
    random, end = Random(7), begin + timedelta(days=2)
    outputs: list[tuple[str, datetime | None]] = []
    put: set[tuple[str, datetime | None]] = set()
    held: list[tuple[Given, UUID]] = []

    def write(given: Given) -> None:
        """A keyed envelope: the same key again is the first one."""
        key = (given.bot.name, given.run.slot)
        if key not in put:
            put.add(key)
            outputs.append(key)

    async def step() -> None:
        broker = random.choice(brokers)
        match random.randrange(5):
            case 0:
                await asyncio.gather(*(each.look() for each in random.sample(brokers, random.randint(1, 2))))
            case 1 | 2:
                program = random.choice(PROGRAMS)
                if (given := await broker.claim(program)) is not None:
                    held.append((given, program))
            case 3 if held:
                given, program = held.pop(random.randrange(len(held)))
                # It dies before the output, between output and end, or not at all; or its lease was over long ago.
                if random.random() < 0.8:
                    write(given)
                    if random.random() < 0.7:
                        await broker.end(given, program, code=random.choice(["", "", "run_failed"]))
            case 4:
                await journal.write(LoseRuns(clock.at))

    while clock.at < end:
        clock.at += timedelta(minutes=random.choice([0, 1, 5, 20, 90]))
        for _ in range(4):
            await step()
    clock.at = end
    for _ in range(12):
        await asyncio.gather(*(each.look() for each in brokers))
        clock.at += timedelta(hours=2)
        await journal.write(LoseRuns(clock.at))
        while (given := await first.claim()) is not None:
            write(given)
            await first.end(given)
    wanted = [
        (name, slot)
        for name, cron in crons.items()
        for slot in Schedule(cron, "Europe/Paris").between(begin, clock.at - timedelta(hours=2))
    ]
    found = await journal.read(runs)
    assert {run.state for run in found} == {"done"}
    names = {each.id: each.name for each in first.catalog.bots.values()}
    assert sorted((names[run.bot_id], run.slot) for run in found if run.slot <= end) == sorted(
        each for each in wanted if each[1] <= end
    )
    assert sorted(outputs) == sorted(set(outputs)) == sorted((names[run.bot_id], run.slot) for run in found)


async def test_another_role_ends_no_run(journal: Journal, clock: MovingClock) -> None:
    broker = await broker_with(journal, clock, bot())
    clock.at += timedelta(days=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    assert not await broker.end(given, role_id=broker.runner + 1)
    assert await broker.end(given)


class ReadingBroker(Broker):
    """A broker with a bot that reads; a new one is as one after a restart."""

    def __init__(self, journal: Journal, catalog: Catalog, clock: MovingClock, tasks: asyncio.TaskGroup) -> None:
        super().__init__(journal, catalog, clock)
        self.tasks = tasks
        self.log = LogReader(journal, cast(Bell, None))
        self.slices = LogSlices(self.log)
        self.desks: dict[str, ReaderDesk] = {}
        self.batches = BotBatches(journal, lambda: self.catalog.bots, self.desks.get, clock, lambda: None)
        self.claims = Claims(journal, lambda: catalog, clock, Ids(clock), lambda: self.batches.runs)

    async def start(self) -> "ReadingBroker":
        await self.log.refresh()
        self.waking = self.tasks.create_task(self.slices.follow())
        for entry in await self.journal.read(read_readers):
            self.desks[entry.key] = ReaderDesk(entry, self.journal, self.slices, self.clock, self.failing)
            await self.desks[entry.key].follow()
        self.batches.follow(self.tasks)
        return self

    def die(self) -> None:
        self.catalog = replace(self.catalog, bots={})
        self.batches.follow(self.tasks)
        self.waking.cancel()

    def items(self, given: Given) -> list[tuple[str, bytes]]:
        events = self.batches.events(given.run.id)
        assert events is not None
        return [
            (str(event["partition_key"]), item)
            for event in events
            for item in unpack_items(event["data"], event["items"])
        ]


@pytest.mark.long
async def test_each_batch_once_whatever_dies(journal: Journal, clock: MovingClock) -> None:
    """Runners die before and after they have put a batch, and the broker is restarted meanwhile."""
    reads = bot(cron='""', reads='["orders"]', batch_items=3, instances=3, attempts=1000)
    catalog = (await broker_with(journal, clock, reads)).catalog
    scribe, random = Scribe(journal, catalog), Random(11)
    keys = ["a", "b", "c", "d", "e", "f"]
    wanted: dict[str, list[bytes]] = {key: [] for key in keys}
    put: dict[str, list[tuple[str, bytes]]] = {}

    def write(given: Given, items: list[tuple[str, bytes]]) -> None:
        """A keyed envelope: the same key again is the first one, which holds the same."""
        assert given.run.batch is not None
        assert put.setdefault(given.run.batch, items) == items

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        broker = await ReadingBroker(journal, catalog, clock, tasks).start()
        held: list[tuple[Given, list[tuple[str, bytes]], UUID]] = []
        left = 24

        def is_over() -> bool:
            return left == 0 and sum(map(len, put.values())) == 24

        while not is_over():
            await asyncio.sleep(0.005)
            match random.randrange(6):
                case 0 if left:
                    key = random.choice(keys)
                    wanted[key].append(bytes([left]))
                    await scribe.put([bytes([left])], type_name="orders", tags=[EventTags(partition_key=key)])
                    left -= 1
                case 1 | 2:
                    program = random.choice(PROGRAMS)
                    if (given := await broker.claim(program)) is not None:
                        held.append((given, broker.items(given), program))
                case 3 | 4 if held:
                    given, items, program = held.pop(random.randrange(len(held)))
                    if random.random() < 0.8:
                        write(given, items)
                        if random.random() < 0.8:
                            await broker.end(given, program, code=random.choice(["", "", "run_failed"]))
                            broker.batches.look(given.run.id)
                case 5 if random.random() < 0.2:
                    clock.at += timedelta(minutes=90)
                    await journal.write(LoseRuns(clock.at))
                    if random.random() < 0.3:
                        broker.die()
                        broker = await ReadingBroker(journal, catalog, clock, tasks).start()
        broker.die()
    found = await journal.read(runs)
    assert len({run.batch for run in found}) == len(found)
    assert len(await journal.read(read_ranges)) == 3
    for key in keys:
        assert [item for run in found for of, item in put.get(run.batch, ()) if of == key] == wanted[key]


async def seal_output(journal: Journal, given: Given) -> None:
    """Seal what a run has put, as its process does before anybody is told."""
    emitter_id = next(each.id for each in (await Scribe.of(journal)).catalog.emitters.values() if "bot/" in each.login)
    envelope_id = keyed_envelope_id(emitter_id, run_key(given.run.id, given.run.slot, given.run.batch))
    started = journal.write(StartEnvelope(envelope_id, emitter_id, NOW))
    await journal.write(Seal(envelope_id, 0, 0, NOW))
    await started


@pytest.mark.parametrize("told", ["nobody", "failure", "nobody, when it was due again"])
async def test_a_run_that_sealed_its_output_and_died_is_done(journal: Journal, clock: MovingClock, told: str) -> None:
    broker = await broker_with(journal, clock, bot(attempts=3))
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    is_late = told.endswith("again")
    if not is_late:
        await seal_output(journal, given)
    if told == "failure":
        assert await broker.end(given, code="run_crashed")
    clock.at += timedelta(minutes=1)
    assert await journal.write(LoseRuns(clock.at)) == (told != "failure")
    if is_late:
        # It was only stopped, and goes on before another runner begins.
        await seal_output(journal, given)
    clock.at += timedelta(minutes=5)
    assert await broker.claim(PROGRAMS[1]) is None
    (run,) = await journal.read(runs)
    assert (run.state, run.code, run.attempts) == ("done", None, 1)


async def test_a_run_is_done_though_the_envelope_of_an_attempt_before_was_removed(
    journal: Journal, clock: MovingClock
) -> None:
    """1. An attempt is broken off. 2. The next one puts all, and dies. 3. What the first one left is removed."""
    broker = await broker_with(journal, clock, bot(attempts=3))
    clock.at += timedelta(hours=1)
    await broker.look()
    given = await broker.claim()
    assert given is not None
    first_id = await begin_output(journal, given, 0)
    await journal.write(Cancel(first_id, NOW, "broken off"))
    assert await broker.end(given, code="run_failed")
    clock.at += timedelta(minutes=5)
    given = await broker.claim()
    assert given is not None
    await journal.write(Seal(await begin_output(journal, given, 1), 0, 0, NOW))
    await journal.run(lambda connection: prune_cancelled(connection, journal.name, clock.at, clock.at))
    assert await broker.end(given, code="run_crashed")
    (run,) = await journal.read(runs)
    assert (run.state, run.code, run.attempts) == ("done", None, 2)


async def begin_output(journal: Journal, given: Given, generation: int) -> UUID:
    """Begin the envelope of an attempt under the key of its run, as the front does."""
    emitter_id = next(each.id for each in (await Scribe.of(journal)).catalog.emitters.values() if "bot/" in each.login)
    key = run_key(given.run.id, given.run.slot, given.run.batch)
    envelope_id = keyed_envelope_id(emitter_id, key, generation)
    await journal.write(StartEnvelope(envelope_id, emitter_id, NOW, EnvelopeHead(key=key)))
    return envelope_id


async def test_a_range_of_a_bot_is_not_cut_while_its_batch_is_out(journal: Journal, clock: MovingClock) -> None:
    """Its output may be sealed under a key of the whole batch: its halves would be put once more."""
    reads = bot(cron='""', reads='["orders"]', instances=2)
    catalog = (await broker_with(journal, clock, reads)).catalog
    decision = RepairDecision("ada", "to try it", NOW)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        broker = await ReadingBroker(journal, catalog, clock, tasks).start()
        await Scribe(journal, catalog).put([b"a"], type_name="orders", tags=[EventTags(partition_key="a")])
        while (given := await broker.claim()) is None:
            await asyncio.sleep(0.005)
        before = await journal.read(read_ranges)
        (is_out,) = [each.id for each in before if each.handed_out]
        assert await journal.read(people.plan_move, "bot/report", "oldest"), "nothing is done yet"
        with pytest.raises(Refused) as refused:
            await journal.run(people.split, "bot/report", is_out, decision)
        assert (refused.value.code, bool(refused.value.next_step)) == ("batch_is_out", True)
        with pytest.raises(Refused) as refused:
            await journal.run(people.merge, "bot/report", [each.id for each in before], decision)
        assert refused.value.code == "batch_is_out"
        assert await journal.read(read_ranges) == before
        await broker.end(given)
        broker.batches.look(given.run.id)
        while any(each.handed_out for each in await journal.read(read_ranges)):
            await asyncio.sleep(0.005)
        for going_back in (
            journal.run(people.move, "bot/report", "oldest", decision),
            journal.run(people.undo, "bot/report", decision),
        ):
            with pytest.raises(Refused) as refused:
                await going_back
            assert (refused.value.code, bool(refused.value.next_step)) == ("bot_goes_back", True)
        assert len(await journal.run(people.split, "bot/report", is_out, decision)) == 2
        broker.die()
