"""Fires the slots of bots when they come, and those that were missed as their bots want it."""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NoReturn

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.bots import BotEntry, BotProgress, read_progress
from xbus.broker.journal.writes.bots import FireSlots
from xbus.clock import Clock
from xbus.errors import JournalUnavailable
from xbus.slots import LATE, Missed, Schedule, decided_until, due_slots

log = logging.getLogger(__name__)


class Timetable:
    """Bots by the moment at which they are to be looked at next. Each has one moment at the most."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int]] = []
        self._moments: dict[int, datetime] = {}

    def __len__(self) -> int:
        return len(self._moments)

    def put(self, bot_id: int, moment: datetime | None) -> None:
        """Look at a bot at this moment, and at no other; None for never."""
        if moment is None:
            self._moments.pop(bot_id, None)
        elif self._moments.get(bot_id) != moment:
            self._moments[bot_id] = moment
            heapq.heappush(self._heap, (moment, bot_id))

    def retain(self, bot_ids: Iterable[int]) -> None:
        """Forget all other bots."""
        for bot_id in self._moments.keys() - set(bot_ids):
            del self._moments[bot_id]

    @property
    def next(self) -> datetime | None:
        """The moment of the bot that comes first; None without any."""
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: datetime) -> list[int]:
        """Take out the bots whose moment has come."""
        due: list[int] = []
        while (moment := self.next) is not None and moment <= now:
            _, bot_id = heapq.heappop(self._heap)
            del self._moments[bot_id]
            due.append(bot_id)
        return due


MOST_AT_ONCE = 100
"""Slots of a bot that are fired in one write. More catches up sooner, and keeps other writes waiting for longer."""

LONGEST_WAIT_SECONDS = 30.0
"""A clock that somebody sets is noticed so soon."""

LOOK_AGAIN_SECONDS = LONGEST_WAIT_SECONDS
"""A bot whose progress could not be read is looked at again so late. Each look reads the progress of all bots."""

RETRY_SECONDS = 1.0
"""Seconds until a database is asked again that could not be."""


class Firing:
    """Makes a run of each slot that comes. The journal refuses a second one, so several brokers may fire.

    Args:
        journal: keeps runs, and how far each bot has come.
        bots: gives the bots in use, by id.
        clock: says what time it is.
        on_fired: called when runs have been made.
    """

    def __init__(
        self,
        journal: Journal,
        bots: Callable[[], Mapping[int, BotEntry]],
        clock: Clock,
        on_fired: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._bots = bots
        self._clock = clock
        self._on_fired = on_fired
        self._timetable = Timetable()
        self._schedules: dict[tuple[str, str], Schedule] = {}
        self._known: dict[int, BotEntry] = {}
        self._progress: dict[int, BotProgress] = {}
        self._again: float | None = None
        """The next look at all bots, by the monotonic clock; None while all progress can be read."""
        self._looked_at: datetime | None = None
        self._changed = asyncio.Event()

    def configuration_changed(self) -> None:
        """Look at all bots soon."""
        self._changed.set()

    async def watch(self) -> NoReturn:
        """Fire slots for ever; an unreachable database only delays them."""
        self._changed.set()
        while True:
            try:
                await self._step()
            except JournalUnavailable as error:
                log.info("no slots fired: %s", error, extra={"action": "slots_not_fired"})
                # What was taken out of the timetable is put back in from the journal.
                self._changed.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _step(self) -> None:
        if self._changed.is_set():
            self._changed.clear()
            await self.follow()
        await self.fire_due()
        moment = self._timetable.next
        seconds = LONGEST_WAIT_SECONDS
        if moment is not None:
            seconds = min(seconds, max((moment - self._clock.now()).total_seconds(), 0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def follow(self) -> None:
        """Look at all bots: they may be new, changed, resumed or released.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        bots = {bot.id: bot for bot in self._bots().values() if bot.cron and bot.pause is None}
        self._timetable.retain(bots)
        progress = self._progress = await self._journal.read(read_progress)
        self._known = {bot_id: bot for bot_id, bot in bots.items() if bot_id in progress}
        self._again = None if len(self._known) == len(bots) else self._clock.monotonic() + LOOK_AGAIN_SECONDS
        # Thousands of crons take a second, and the loop has other work.
        for bot_id, moment in await asyncio.to_thread(self._first_moments, self._known.values(), progress):
            self._timetable.put(bot_id, moment)

    def _first_moments(
        self, bots: Iterable[BotEntry], progress: Mapping[int, BotProgress]
    ) -> list[tuple[int, datetime | None]]:
        return [(bot.id, self._next(bot, progress[bot.id])) for bot in bots]

    def _schedule(self, bot: BotEntry) -> Schedule:
        words = (bot.cron, bot.timezone)
        if words not in self._schedules:
            self._schedules[words] = Schedule(*words)
        return self._schedules[words]

    def _next(self, bot: BotEntry, progress: BotProgress) -> datetime | None:
        """Compute when a bot is to be looked at: at its next slot, but not while it is slowed down."""
        slot = self._schedule(bot).after(decided_until(progress.slots_until, self._clock.now()))
        if slot is None or progress.slowed_until is None:
            return slot
        return max(slot, progress.slowed_until)

    async def fire_due(self) -> None:
        """Fire what is due now.

        Raises:
            JournalUnavailable: the database can't be written now.
        """
        now = self._clock.now()
        is_set_back = self._looked_at is not None and self._looked_at - now > LATE
        self._looked_at = now
        if is_set_back or (self._again is not None and self._clock.monotonic() >= self._again):
            await self.follow()
        due = [bot_id for bot_id in self._timetable.take_due(now) if bot_id in self._known]
        await asyncio.gather(*(self._fire(self._known[bot_id], now) for bot_id in due))

    async def _fire(self, bot: BotEntry, now: datetime) -> None:
        progress: BotProgress | None = self._progress[bot.id]
        if progress is not None and now - progress.slots_until > LATE:
            # Only of slots that have just come it does not matter what others have decided meanwhile.
            progress = await self._read(bot)
        if progress is None:
            return
        after = decided_until(progress.slots_until, now)
        found = due_slots(self._schedule(bot), after, now, bot.missed, MOST_AT_ONCE)
        written = self._journal.write(FireSlots(bot.id, found.slots, found.until, now, bot.missed is Missed.ALL))
        # The claim of a runner that waits may share the commit.
        self._on_fired()
        if await written:
            progress = BotProgress(found.until, None)
            log.info("slots fired", extra={"action": "bot_fired", "bot": bot.name, "slots": len(found.slots)})
        else:
            # Another broker was faster, or the bot is slowed down.
            progress = await self._read(bot)
        if progress is not None:
            self._progress[bot.id] = progress
            self._timetable.put(bot.id, self._next(bot, progress))

    async def _read(self, bot: BotEntry) -> BotProgress | None:
        """Read how far a bot has come. One whose progress can't be read is looked at again later."""
        progress = (await self._journal.read(read_progress, [bot.id])).get(bot.id)
        if progress is None:
            # Other bots that can't be read don't put that moment off.
            self._again = self._again or self._clock.monotonic() + LOOK_AGAIN_SECONDS
        return progress
