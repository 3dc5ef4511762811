"""Reads for bots: it makes a run of each batch, and settles the batch when its run is done.

Each instance of a bot that reads is a program of the bot's reader. Its id is the same after a restart, so that it goes
on with the batch that was out. A batch that is handed out again has the same bounds, so it has the same run.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID, uuid5

from xbus.broker.back.readers import BatchCall, ReaderDesk, ReadingProgram, Settlement
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import BotEntry, is_done, open_run
from xbus.broker.journal.log.slices.values import Place
from xbus.clock import Clock
from xbus.errors import JournalUnavailable, Refused
from xbus.rpc.messages import ClaimedBatchMap, ReadEventMap
from xbus.states import BotRunState

log = logging.getLogger(__name__)

PROGRAMS = UUID("6f2d2b8e-6f0c-4a53-9c3e-5f5f3c6a7d10")
"""The namespace of the ids of instances."""

POLL = BatchCall(wait=30.0, max_items=None, max_bytes=None, done=None)

LOOK_SECONDS = 0.5
"""Seconds between looks at a run, and between signs of life while it goes on: others may end it, too."""

RETRY_SECONDS = 1.0
"""Seconds until a reader is asked again that could not be."""


class _Instance(NamedTuple):
    bot_id: int
    number: int


def batch_name(batch: ClaimedBatchMap) -> str:
    """Name a batch by its range and its bounds, the same whenever it is handed out."""
    begin, end = (":".join(map(str, place)) for place in (batch["from"], batch["to"]))
    return f"range {batch['range']} {begin} to {end}"


class BotBatches:
    """The instances of bots that read, and the batches of which runs are under way.

    Args:
        journal: has the runs.
        bots: gives the bots in use, by id.
        desk: gives the reader of a key, once it is there.
        clock: dates runs.
        on_fired: called when a run has been made.
    """

    def __init__(
        self,
        journal: Journal,
        bots: Callable[[], Mapping[int, BotEntry]],
        desk: Callable[[str], ReaderDesk | None],
        clock: Clock,
        on_fired: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._bots = bots
        self._desk = desk
        self._clock = clock
        self._on_fired = on_fired
        self._instances: dict[_Instance, asyncio.Task[None]] = {}
        self._held: dict[int, ClaimedBatchMap] = {}
        self._ended: dict[int, asyncio.Event] = {}

    @property
    def runs(self) -> frozenset[int]:
        """The runs whose batches are at hand."""
        return frozenset(self._held)

    def events(self, run_id: int) -> list[ReadEventMap] | None:
        """Give what the batch of a run holds; None where its range has been lost meanwhile."""
        batch = self._held.get(run_id)
        return None if batch is None else batch["events"]

    def look(self, run_id: int) -> None:
        """See at once whether a run is done."""
        if run_id in self._ended:
            self._ended[run_id].set()

    def follow(self, tasks: asyncio.TaskGroup) -> None:
        """Have as many instances read as the configuration has now."""
        wanted = {
            _Instance(bot.id, number): bot.name
            for bot in self._bots().values()
            if bot.reader is not None
            for number in range(bot.instances)
        }
        for instance in self._instances.keys() - wanted.keys():
            self._instances.pop(instance).cancel()
        for instance in wanted.keys() - self._instances.keys():
            name = f"bot {wanted[instance]}, instance {instance.number}"
            self._instances[instance] = tasks.create_task(self._read(instance), name=name)

    async def _read(self, instance: _Instance) -> None:
        program_id = uuid5(PROGRAMS, f"{instance.bot_id} {instance.number}")
        while True:
            bot = self._bots()[instance.bot_id]
            desk = None if bot.reader is None else self._desk(bot.reader)
            if desk is None:
                # The configuration has it already, and the back takes it up soon.
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                await self.step(desk, bot, ReadingProgram(program_id, None, f"bot/{bot.name}"))
            except (JournalUnavailable, Refused) as error:
                log.info("no batch: %s", error, extra={"action": "batch_not_read", "bot": bot.name})
                await asyncio.sleep(RETRY_SECONDS)

    async def step(self, desk: ReaderDesk, bot: BotEntry, program: ReadingProgram) -> None:
        """Wait for a batch, have it run, and settle it.

        Raises:
            Refused: another has the range meanwhile (``lease_lost``).
            JournalUnavailable: the database can't be read or written now.
        """
        batch = (await desk.read(program, POLL, lambda: self._is_paused(bot.id)))["batch"]
        if batch is None:
            return
        run = await self._journal.run(open_run, bot.id, batch_name(batch), self._clock.now())
        if run.state == BotRunState.DONE or await self._run(desk, program, run.id, batch):
            await desk.settle(program, Settlement(batch["range"], batch["counter"], Place.of(batch["to"])))

    async def _run(self, desk: ReaderDesk, program: ReadingProgram, run_id: int, batch: ClaimedBatchMap) -> bool:
        """Wait until a run is done; false where its range was lost before."""
        self._held[run_id] = batch
        ended = self._ended[run_id] = asyncio.Event()
        self._on_fired()
        try:
            while not await self._journal.read(is_done, run_id):
                if [batch["range"], batch["counter"]] not in desk.renew(program)["ranges"]:
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await ended.wait()
                ended.clear()
            return True
        finally:
            # The same bounds may be another instance's by now, after a person moved the reader.
            if self._ended.get(run_id) is ended:
                del self._held[run_id], self._ended[run_id]

    def _is_paused(self, bot_id: int) -> bool:
        bot = self._bots().get(bot_id)
        return bot is None or bot.pause is not None
