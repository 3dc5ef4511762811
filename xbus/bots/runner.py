"""The runner: it claims runs, has children carry them out, and keeps their leases meanwhile."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass, field

from xbus.backoff import Backoff
from xbus.bots.back import BackCalls
from xbus.bots.job import Allowed, Outcome, RunJob
from xbus.bots.process import Child, WarmChildren, passed_on
from xbus.errors import CallError, Refused
from xbus.rpc.messages import BotRun

log = logging.getLogger(__name__)

FINAL = ("login_refused", "not_a_runner", "unknown_method", "key_not_allowed")
"""After a refusal with one of these codes it is of no use to ask again."""

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0

STOPPED = Outcome("runner_stopped", "the runner was stopped before the run had ended")
LOST = "run_lost"
NOT_STARTED = "run_not_started"

PAUSE_SECONDS = 5.0
"""Seconds for which a place takes no run after one whose process did not start. Fewer fail more runs that another
runner could do."""


@dataclass(frozen=True)
class RunnerOptions:
    """The options of a runner.

    Attributes:
        allowed: the functions and programs that it runs.
        variables: the names of variables that runs have, beside those of ``PASSED``.
        runs: so many runs at once.
        warm: so many processes wait for the next run of their bots.
        wait_seconds: for a run, in one call.
        stop_seconds: that runs have to end when the runner stops.
    """

    allowed: Allowed = field(default_factory=Allowed)
    variables: Collection[str] = ()
    runs: int = 4
    warm: int = 16
    wait_seconds: float = 20.0
    stop_seconds: float = 30.0


DEFAULTS = RunnerOptions()


class BotRunner:
    """Runs what is due, until it is told to stop.

    Args:
        back: the calls to the back.
        front: the front socket of the bus, for the output of runs.
        options: how it does so.
    """

    def __init__(self, back: BackCalls, front: str, options: RunnerOptions = DEFAULTS) -> None:
        self._back = back
        self._front = front
        self._options = options
        self._children = WarmChildren(options.warm, passed_on(os.environ, options.variables))
        self._running: dict[int, asyncio.Task[None]] = {}
        self._lease_seconds = 10.0
        self._has_runs = asyncio.Event()

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; then wait for what runs.

        Raises:
            Refused: login or password are wrong (``login_refused``), the role is that of no runner (``not_a_runner``),
                or the broker knows no bots (``unknown_method``).
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [tasks.create_task(self._renew(), name="leases of runs")]
                helpers += [
                    tasks.create_task(self._work(), name=f"place {number}") for number in range(self._options.runs)
                ]
                await stop.wait()
                await self._end(helpers)
        except* Refused as refusals:
            raise refusals.exceptions[0] from None
        finally:
            await self._children.close()
            await self._back.log_out()

    async def _end(self, helpers: "list[asyncio.Task[None]]") -> None:
        """Take nothing new, and end what does not end in time."""
        renewing, *places = helpers
        running = [*self._running.values()]
        log.info("told to stop", extra={"action": "told_to_stop", "runs": len(running)})
        for place in places:
            place.cancel()
        # Their calls still wait at the back, which would give them runs that nobody carries out.
        await self._back.log_out()
        if running:
            await asyncio.wait(running, timeout=self._options.stop_seconds)
        for run in running:
            run.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        renewing.cancel()

    async def _work(self) -> None:
        """Fill one place with one run after the other."""
        backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        while True:
            try:
                claimed = await self._back.claim(self._options.wait_seconds)
            except CallError as error:
                if error.code in FINAL:
                    raise
                log.warning("no run claimed: %s", error, extra={"action": "run_not_claimed", "code": error.code})
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._lease_seconds = claimed["lease"]
            run = claimed["run"]
            if run is not None:
                if (former := self._running.get(run["run"])) is not None:
                    # Its lease ran out here, as when the machine stood still.
                    former.cancel(LOST)
                task = asyncio.create_task(self._carry_out(run), name=f"run {run['run']} of {run['bot']}")
                self._running[run["run"]] = task
                self._has_runs.set()
                # A place that ends leaves its run alone.
                await asyncio.wait([task])

    async def _carry_out(self, run: BotRun) -> None:
        extra = {"bot": run["bot"], "run": run["run"], "attempt": run["attempt"]}
        log.info("run begins", extra={"action": "run_begins", **extra})
        printed = ""
        try:
            outcome, printed = await self._in_child(run)
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (LOST,):
                log.warning("run lost", extra={"action": "run_lost", **extra})
                return
            outcome = STOPPED
        finally:
            if self._running.get(run["run"]) is asyncio.current_task():
                del self._running[run["run"]]
        log.info("run ended", extra={"action": "run_ended", "code": outcome.code, **extra})
        await self._tell(run, outcome, printed)
        if outcome.code == NOT_STARTED:
            await asyncio.sleep(PAUSE_SECONDS)

    async def _in_child(self, run: BotRun) -> tuple[Outcome, str]:
        work = run["call"] or run["bot"]
        try:
            child = await self._children.get(work)
        except OSError as error:
            return Outcome(NOT_STARTED, f"the runner can't start a process for the run now ({error})"), ""
        try:
            async with asyncio.timeout(run["max_seconds"]):
                outcome = await child.carry_out(RunJob(run, self._front, self._options.allowed))
        except TimeoutError:
            await child.kill()
            outcome = Outcome("run_too_long", f"the run took longer than max_seconds, {run['max_seconds']:g}")
        except BaseException:
            await self._end_child(child)
            raise
        printed = child.take_printed()
        await self._children.give_back(child, work)
        return outcome, printed

    async def _end_child(self, child: Child) -> None:
        await child.kill()
        child.close()

    async def _tell(self, run: BotRun, outcome: Outcome, printed: str) -> None:
        """Tell the back how a run ended; if it can't be reached the lease ends, and the run is repeated."""
        result = {"code": outcome.code, "error": outcome.error, "log": printed}
        backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._lease_seconds):
                while True:
                    try:
                        await self._back.end(run, result)
                        return
                    except CallError as error:
                        extra = {"action": "run_end_untold", "code": error.code, "run": run["run"]}
                        log.warning("the end of a run was not told: %s", error, extra=extra)
                        await asyncio.sleep(backoff.next())

    async def _renew(self) -> None:
        """Keep the leases of what runs, and end what was lost."""
        while True:
            await self._has_runs.wait()
            await asyncio.sleep(self._lease_seconds / 3)
            before = {*self._running}
            if not before:
                self._has_runs.clear()
                continue
            try:
                held = {*await self._back.renew(before)}
            except CallError as error:
                log.warning("no lease renewed: %s", error, extra={"action": "runs_not_renewed", "code": error.code})
                continue
            for lost in before - held:
                if (task := self._running.get(lost)) is not None:
                    task.cancel(LOST)
