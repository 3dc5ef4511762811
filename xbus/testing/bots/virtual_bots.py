"""The bots of a bus in memory: their functions, what happened at them, and their runners in virtual time.

A runner is as ``xbus.bots.runner``, which has processes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TypeAlias
from uuid import UUID

from xbus.bots import BotBatch, BotOutput
from xbus.bots.job import ANY, Allowed, Outcome, RunJob
from xbus.bots.work import do_work, failed
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes import RunFailure
from xbus.envelope import EnvelopeHead
from xbus.errors import XbusError
from xbus.rpc.messages import BotRun
from xbus.testing.bots.output import GatheredOutput
from xbus.testing.broker import VirtualBroker
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
