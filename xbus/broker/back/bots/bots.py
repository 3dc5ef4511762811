"""The face for the verbs: runners claim runs, keep them, and end them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from shlex import quote
from uuid import UUID

from xbus.broker.back.bots.batches import BotBatches
from xbus.broker.back.bots.claims import LEASE_SECONDS, Claims, Given
from xbus.broker.back.bots.firing import Firing
from xbus.broker.back.readers import ReaderDesk
from xbus.broker.configuration import Configuration
from xbus.broker.housekeeping.looks import look_regularly
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import read_slowed
from xbus.broker.journal.writes.bots import EndRun, RenewRuns, RunFailure, run_key
from xbus.clock import Clock
from xbus.errors import Refused
from xbus.ids import Ids, parse_new_uuid, token_hash
from xbus.rpc.messages import BotRun, ClaimedBotRun
from xbus.supervision.health import Health, Problem
from xbus.texts import plain

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Seconds between looks at bots that are slowed down: health tells of them so much later."""

SLOWED = "bot_slowed"

LONGEST_WAIT_SECONDS = 30.0
"""The longest wait for a run, in seconds. A caller that is lost is noticed by then."""

MOST_CODE_LETTERS = 64
MOST_ERROR_LETTERS = 4_000
MOST_LOG_LETTERS = 65_536
"""The letters that are kept of an attempt: the beginning of its code and its error, the end of its log."""


class Bots:
    """The bots of the back.

    Args:
        journal: keeps their runs.
        configuration: has bots and runners.
        clock: dates what happens.
        ids: makes the words by which runs log in.
        desk: gives the reader of a key, once it is there.
        health: tells which bots are slowed down.
    """

    def __init__(
        self,
        journal: Journal,
        configuration: Configuration,
        clock: Clock,
        ids: Ids,
        desk: Callable[[str], ReaderDesk | None],
        health: Health,
    ) -> None:
        self._journal = journal
        self._configuration = configuration
        self._clock = clock
        self._health = health
        self._claims = Claims(journal, lambda: configuration.catalog, clock, ids, lambda: self._batches.runs)
        self._firing = Firing(journal, lambda: configuration.catalog.bots, clock, self._claims.stir)
        self._batches = BotBatches(journal, lambda: configuration.catalog.bots, desk, clock, self._claims.stir)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to fire slots and to give out runs, in tasks of this group."""
        self._configuration.on_change(self._firing.configuration_changed)
        self._configuration.on_change(self._claims.stir)
        self._configuration.on_change(lambda: self._batches.follow(tasks))
        self._batches.follow(tasks)
        tasks.create_task(self._firing.watch(), name="slots of bots")
        tasks.create_task(self._claims.watch(), name="runs of bots")
        tasks.create_task(look_regularly(self.look, LOOK_SECONDS, "bots"), name="slowed bots")

    async def look(self) -> None:
        """Tell the health which bots are slowed down.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        bots = self._configuration.catalog.bots
        slowed = {each.bot_id: each for each in await self._journal.read(read_slowed)}
        found = [(bot, slowed[bot.id]) for bot in bots.values() if bot.id in slowed]
        self._health.replace(
            (SLOWED,),
            (
                Problem(
                    SLOWED,
                    bot.name,
                    f"the bot {bot.name} is slowed down: {trouble.failures} attempts failed one after another",
                    trouble.failed_at,
                    f"see xbus bot runs {quote(bot.name)}, mend it, then run xbus bot release {quote(bot.name)}",
                )
                for bot, trouble in found
            ),
        )

    async def claim(
        self, role_id: int, program: str, seconds: float, is_logged_in: Callable[[], bool]
    ) -> ClaimedBotRun:
        """Wait for a run.

        Args:
            program: the UUID of the program that asks; it has one for as long as it runs.
            seconds: how long to wait.
            is_logged_in: whether the session of the call goes on.

        Raises:
            Refused: the role runs no bots (``not_a_runner``), or the arguments make no sense (``wrong_arguments``).
        """
        self._check_runner(role_id)
        wait = min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)
        given = await self._claims.wait(role_id, _uuid(program), wait, is_logged_in)
        return {"lease": LEASE_SECONDS, "run": None if given is None else self._run_map(given)}

    def _run_map(self, given: Given) -> BotRun | None:
        bot, run = given.bot, given.run
        events = [] if run.batch is None else self._batches.events(run.id)
        if events is None:
            # Its range was moved at this moment. Nobody has the run, and so it is lost, and due again.
            return None
        emitter = self._configuration.catalog.emitters.get(bot.emitter_id)
        return {
            "run": run.id,
            "bot": bot.name,
            "attempt": run.attempt,
            "repeated": run.repeated,
            "slot": None if run.slot is None else _moment(run.slot),
            "due_at": _moment(run.due_at),
            "key": run_key(run.id, run.slot, run.batch),
            "call": bot.call,
            "command": [*bot.command],
            "settings": dict(bot.settings),
            "max_seconds": bot.max_seconds,
            "emits": [] if emitter is None else sorted(emitter.event_types),
            "login": "" if emitter is None else emitter.login,
            "ticket": given.ticket,
            "reads": [*bot.reads],
            "events": events,
        }

    async def renew(self, role_id: int, program: str, runs: Sequence[int]) -> Sequence[int]:
        """Extend the leases of runs of a program; give those that it has.

        Raises:
            Refused: as ``claim``.
        """
        self._check_runner(role_id)
        until = self._clock.now() + timedelta(seconds=LEASE_SECONDS)
        return await self._journal.write(RenewRuns(role_id, _uuid(program), runs, until))

    async def end(
        self, role_id: int, program: str, run: int, ticket: str, failure: RunFailure | None, said: str
    ) -> bool:
        """End an attempt of a run; returns whether the program still had it.

        Args:
            ticket: of the attempt.
            failure: None where all went well.
            said: what it printed.

        Raises:
            Refused: as ``claim``.
        """
        self._check_runner(role_id)
        if failure is not None:
            failure = RunFailure(plain(failure.code, MOST_CODE_LETTERS), plain(failure.error, MOST_ERROR_LETTERS))
        now, log_end = self._clock.now(), plain(said[-MOST_LOG_LETTERS:])
        write = EndRun(run, role_id, _uuid(program), token_hash(ticket), failure, log_end, now)
        is_ours = await self._journal.write(write)
        self._batches.look(run)
        self._claims.stir()
        return is_ours

    def _check_runner(self, role_id: int) -> None:
        runner = self._configuration.catalog.runners.get(role_id)
        if runner is None or runner.is_gateway:
            raise Refused(
                "the login is that of a role that runs no bots",
                "log in as a role whose service is of kind runner in the bus file",
                code="not_a_runner",
            )


def _uuid(text: str) -> UUID:
    found = parse_new_uuid(text)
    if found is None:
        raise Refused(f"{text!r:.80} is no UUID", "make one when the program starts", code="wrong_arguments")
    return found


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
