"""The bots of a bus in memory: runners in virtual time claim runs of the real back, and call the author's function.

A runner is as ``xbus.bots.runner``, which has processes.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeAlias
from uuid import UUID

from xbus.bots import BotBatch, BotOutput
from xbus.bots.job import ANY, Allowed, Outcome, RunJob
from xbus.bots.work import do_work, failed
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.log.bots import read_progress
from xbus.broker.journal.log.catalog import Catalog, read_catalog
from xbus.broker.journal.operations.bots import find_bot, fire_bot
from xbus.broker.journal.writes.bots import FireSlots, RunFailure
from xbus.emitter import Emitter
from xbus.envelope import EnvelopeHead
from xbus.errors import Refused, XbusError
from xbus.rpc.items import check_several, item_bytes
from xbus.rpc.messages import BotRun
from xbus.slots import Schedule
from xbus.testing.broker import VirtualBroker
from xbus.testing.journal import Database
from xbus.testing.probe import Crash, Mishap, RoleLog
from xbus.testing.sending import InMemoryEmitter

WAIT_SECONDS = 30.0
AGAIN_SECONDS = 0.5
"""Seconds that a claim waits for a run, and between claims where the broker is away."""

RESTART_SECONDS = 1.0
"""Seconds until a runner that has crashed is started again."""

BotFunction: TypeAlias = Callable[[BotBatch, BotOutput], object]

GIVEN = "xbus.testing:given"
"""The call of a bot whose function the test has given. Others are imported, as their bus file says."""


class GatheredOutput(BotOutput):
    """Gathers the events of a run.

    Args:
        key: what the run is for.
        emits: the event types that it may put.

    Attributes:
        events: the type and the items of each, packed.
    """

    def __init__(self, key: str, emits: Iterable[str]) -> None:
        super().__init__(key, emits, False, _no_emitter)
        self.events: list[tuple[str, list[bytes]]] = []

    def put(self, type_name: str, items: Iterable[object]) -> None:
        """Gather an event; errors are those of ``BotOutput.put``."""
        self._check(type_name)
        check_several(items)
        self.events.append((type_name, [item_bytes(item) for item in items]))


def _no_emitter() -> Emitter:
    raise AssertionError("nothing is sent before the function has returned")


class VirtualBots:
    """Starts a runner for each role that runs bots, and calls their functions with a probe as that of recipients.

    Args:
        find_broker: gives the broker that runs now, or None.
        random: makes the ids of programs.
    """

    def __init__(self, find_broker: Callable[[], VirtualBroker | None], random: Random) -> None:
        self._find_broker = find_broker
        self._random = random
        self._logs: dict[str, RoleLog] = {}
        self._given: dict[str, BotFunction] = {}
        self._catalog: Catalog | None = None
        self._runners: dict[int, asyncio.Task[None]] = {}

    def log(self, bot: str) -> RoleLog:
        """Give what happened at a bot, and what is to happen."""
        return self._logs.setdefault(bot, RoleLog())

    def give(self, bot: str, function: BotFunction) -> None:
        """Have a bot call a function from now on."""
        self._given[bot] = function

    def know(self, catalog: Catalog) -> None:
        """Take note of the bots of a bus, and of their runners."""
        self._catalog = catalog

    @property
    def names(self) -> frozenset[str]:
        """The names of the bots."""
        return frozenset(bot.name for bot in self._catalog.bots.values()) if self._catalog is not None else frozenset()

    def start_all(self) -> None:
        """Start each runner that does not run, in a running loop."""
        runners = self._catalog.runners if self._catalog is not None and self._catalog.bots else {}
        for role_id, entry in runners.items():
            if role_id not in self._runners and not entry.is_gateway:
                running = asyncio.get_running_loop().create_task(self._serve(role_id), name="runner of bots")
                self._runners[role_id] = running

    async def _serve(self, role_id: int) -> None:
        """For ever: be a program of a role that runs what is due, and another one after each crash."""
        while True:
            try:
                await self._live(role_id, str(UUID(int=self._random.getrandbits(128), version=4)))
            except Crash:
                await asyncio.sleep(RESTART_SECONDS)

    async def _live(self, role_id: int, program: str) -> None:
        """Run what is due, one run after the other: a function takes no virtual time."""
        while True:
            broker = self._find_broker()
            if broker is None or not broker.serves:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            try:
                claim = broker.bots.claim(role_id, program, WAIT_SECONDS, lambda: True)
                claimed = await broker.unless_dead(claim)
                if (run := claimed["run"]) is not None:
                    outcome = await self._outcome(broker, run)
                    failure = RunFailure(outcome.code, outcome.error) if outcome.code else None
                    ended = broker.bots.end(role_id, program, run["run"], run["ticket"], failure, "")
                    await broker.unless_dead(ended)
            except XbusError:  # the lease ends, and the run is given out again
                await asyncio.sleep(AGAIN_SECONDS)

    async def _outcome(self, broker: VirtualBroker, run: BotRun) -> Outcome:
        """Carry a run out.

        Raises:
            Crash: the runner is to crash now.
        """
        output = GatheredOutput(run["key"], run["emits"])
        with ThreadPoolExecutor(1) as thread:  # of its own, as this one runs a loop, and the author's code may run one
            outcome = thread.submit(self._call, RunJob(run, "", Allowed([ANY], [ANY])), output).result()
        self._reach(run["bot"], "before_commit")
        if not outcome.code and output.events:
            emitter = InMemoryEmitter(broker, broker.emitter_id(run["login"]), self._random)
            options = EnvelopeHead(None, run["key"])
            try:
                await broker.unless_dead(emitter.send(output.events, options, lambda name: False))
            except XbusError as error:
                outcome = Outcome(error.code, str(error))
        self._reach(run["bot"], "after_commit")
        return outcome

    def _call(self, job: RunJob, output: GatheredOutput) -> Outcome:
        """Do a job; whatever the author's code raises is its outcome.

        Raises:
            Crash: the runner is to crash now.
        """
        bot = job.run["bot"]
        self._reach(bot, "items")
        failures = self.log(bot).failures
        try:
            if failures:
                raise failures.popleft()
            if bot in self._given:
                self._given[bot](job.batch, output)
            else:
                do_work(job, output)
        except (Exception, SystemExit) as error:
            self.log(bot).mishaps.append(Mishap(bot, "", None, error))
            return failed(error)
        return Outcome()

    def _reach(self, bot: str, point: str) -> None:
        """Crash, where that is to happen at this moment.

        Raises:
            Crash: now.
        """
        log = self.log(bot)
        if log.crash == point:
            log.crash = None
            log.crashes += 1
            raise Crash


async def fire(
    broker: VirtualBroker, database: Database, name: str, slot: datetime | None, now: datetime
) -> datetime | None:
    """Make a run of a slot, unless it had its turn; give the slot, None for a bot without cron.

    Args:
        slot: None for the next one.

    Raises:
        Refused: no bot is called so (``unknown_name``), it has no such slot (``no_slot``), or it reads (``bot_reads``).
    """
    bot_id = database.read(find_bot, name)
    bot = database.read(read_catalog).bots[bot_id]
    if not bot.cron:
        if slot is not None:
            raise Refused(f'the bot "{bot.name}" has no cron', "fire it without a slot", code="no_slot")
        database.write(fire_bot, bot.name, None, RepairDecision("the test", "", now))
        return None
    schedule = Schedule(bot.cron, bot.timezone)
    until = database.read(read_progress, [bot.id])[bot.id].slots_until
    chosen = schedule.after(until) if slot is None else slot.astimezone(UTC)
    if chosen is None or schedule.after(chosen - timedelta(seconds=1)) != chosen:
        raise Refused(
            f'{slot:%Y-%m-%d %H:%M:%S %Z} is no slot of "{bot.name}" ({bot.cron}, {bot.timezone})',
            "name a moment at which its cron is due, with its time zone",
            code="no_slot",
        )
    if chosen > until:
        await broker.fire(FireSlots(bot.id, [chosen], chosen, now))
    return chosen
