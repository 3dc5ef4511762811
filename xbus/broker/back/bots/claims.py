"""The programs of runners that wait for a run, and the looks at what is due."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, NoReturn
from uuid import UUID

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import BotEntry, RunnerEntry, read_runs_now
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.writes.bots import ClaimedRun, ClaimRun, LoseRuns
from xbus.clock import Clock
from xbus.errors import JournalUnavailable
from xbus.ids import Ids, token_hash

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between looks at runs that nobody here has fired: by persons, by other brokers, or again after a failure."""

LEASE_SECONDS = 10.0
"""Seconds for which a runner has a run, unless it gives a sign of life. Smaller notices the loss of one sooner, and has
one lose its run that was stopped for a moment."""


class Given(NamedTuple):
    """A run for a program, and the word by which that run may log in at the front."""

    run: ClaimedRun
    bot: BotEntry
    ticket: str


@dataclass(eq=False, slots=True)
class _WaitingProgram:
    role_id: int
    program: UUID
    answer: "asyncio.Future[Given | None]"
    is_logged_in: Callable[[], bool]
    is_served: bool = False
    """A run is being claimed for it: it must not leave before that is known."""
    is_over: bool = False


class Claims:
    """Gives runs to programs that wait, those first that have waited longest.

    Args:
        journal: has the runs, and decides who gets one.
        catalog: has the bots and the runners.
        clock: dates the leases.
        ids: makes tickets.
        batches: gives the runs for batches whose items are at hand.
    """

    def __init__(
        self,
        journal: Journal,
        catalog: Callable[[], Catalog],
        clock: Clock,
        ids: Ids,
        batches: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self._journal = journal
        self._catalog = catalog
        self._clock = clock
        self._ids = ids
        self._batches = batches
        self._waiting: dict[_WaitingProgram, None] = {}
        self._stirred = asyncio.Event()
        self._looked_at = 0.0

    def stir(self) -> None:
        """Look at once: a run may be due, or a place free."""
        self._stirred.set()

    async def wait(
        self, role_id: int, program: UUID, seconds: float, is_logged_in: Callable[[], bool] = lambda: True
    ) -> Given | None:
        """Wait for a run; None where none came in time.

        Args:
            is_logged_in: whether the session of the call goes on; a program that has logged out gets no run.
        """
        waiting = _WaitingProgram(role_id, program, asyncio.get_running_loop().create_future(), is_logged_in)
        self._waiting[waiting] = None
        self.stir()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(waiting.answer)
        except TimeoutError:
            waiting.is_over = True
            return await waiting.answer if waiting.is_served else None
        finally:
            self._waiting.pop(waiting, None)

    async def watch(self) -> NoReturn:
        """Give runs to those who wait, for ever; an unreachable database only delays them."""
        while True:
            try:
                await self._step()
            except JournalUnavailable as error:
                log.info("no runs given: %s", error, extra={"action": "runs_not_given"})
                await asyncio.sleep(LOOK_SECONDS)

    async def _step(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._stirred.wait()
        except TimeoutError:
            if not await self._look():
                return
        self._stirred.clear()
        await self.give()
        # A bus that is always busy has runners that die, too. Nobody who is due waits for this look.
        if asyncio.get_running_loop().time() >= self._looked_at + LOOK_SECONDS and await self._look():
            self.stir()

    async def _look(self) -> bool:
        """Take the runs of lost runners from them; true if a run is due."""
        self._looked_at = asyncio.get_running_loop().time()
        if not self._catalog().bots:
            return False
        now = self._clock.now()
        runs = await self._journal.read(read_runs_now, now, self._batches())
        if runs.lost:
            lost = await self._journal.write(LoseRuns(now))
            log.warning("runners lost", extra={"action": "runners_lost", "runs": lost})
        return bool(runs.due)

    async def give(self) -> None:
        """Give out what is due.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        idle: set[int] = set()
        for waiting in [*self._waiting]:
            runner = self._catalog().runners.get(waiting.role_id)
            if runner is None or runner.pause is not None or runner.service_id in idle or waiting.is_over:
                continue
            if not waiting.is_logged_in():
                continue
            if not await self._serve(waiting, runner):
                idle.add(runner.service_id)

    async def _serve(self, waiting: _WaitingProgram, runner: RunnerEntry) -> bool:
        given: Given | None = None
        waiting.is_served = True
        try:
            given = await self._claim(runner, waiting.program)
        finally:
            waiting.is_served = False
            if (given is not None or waiting.is_over) and not waiting.answer.done():
                self._waiting.pop(waiting, None)
                waiting.answer.set_result(given)
        return given is not None

    async def _claim(self, runner: RunnerEntry, program: UUID) -> Given | None:
        bots = {
            bot.id: bot
            for bot in self._catalog().bots.values()
            if bot.service_id == runner.service_id and bot.pause is None
        }
        if not bots:
            return None
        ticket, now = self._ids.token(), self._clock.now()
        instances = {bot.id: bot.instances for bot in bots.values()}
        until = now + timedelta(seconds=LEASE_SECONDS)
        claim = ClaimRun(instances, self._batches(), runner.id, program, token_hash(ticket), until, now)
        run = await self._journal.write(claim)
        return None if run is None else Given(run, bots[run.bot_id], ticket)
