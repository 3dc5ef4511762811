"""The functions that a test has given to bots; others are imported, as their bus file says."""

from collections.abc import Callable
from typing import TypeAlias

from xbus.bots import BotBatch, BotOutput
from xbus.bots.job import Outcome, RunJob
from xbus.bots.work import do_work, failed
from xbus.testing.bots.output import GatheredOutput
from xbus.testing.probe import Crash, Mishap, RoleLog

BotFunction: TypeAlias = Callable[[BotBatch, BotOutput], object]

GIVEN = "xbus.testing:given"
"""The call of a bot whose function the test has given."""


class BotFunctions:
    """Calls the function of a run, with a probe as that of recipients.

    Args:
        log: gives what happened at a bot, and what is to happen.
    """

    def __init__(self, log: Callable[[str], RoleLog]) -> None:
        self._log = log
        self._given: dict[str, BotFunction] = {}

    def give(self, bot: str, function: BotFunction) -> None:
        """Have a bot call a function from now on."""
        self._given[bot] = function

    def call(self, job: RunJob, output: GatheredOutput) -> Outcome:
        """Do a job; whatever the author's code raises is its outcome.

        Raises:
            Crash: the runner is to crash now.
        """
        bot = job.run["bot"]
        self.reach(bot, "items")
        failures = self._log(bot).failures
        try:
            if failures:
                raise failures.popleft()
            if bot in self._given:
                self._given[bot](job.batch, output)
            else:
                do_work(job, output)
        except (Exception, SystemExit) as error:
            self._log(bot).mishaps.append(Mishap(bot, "", None, error))
            return failed(error)
        return Outcome()

    def reach(self, bot: str, point: str) -> None:
        """Crash, where that is to happen at this moment.

        Raises:
            Crash: now.
        """
        log = self._log(bot)
        if log.crash == point:
            log.crash = None
            log.crashes += 1
            raise Crash
