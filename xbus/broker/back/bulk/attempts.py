"""The attempts of bulk workers that count: in memory as in the journal, whose only writer this is."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TypeVar
from uuid import UUID

from xbus.broker.back.bulk.attempt import OutputAttempt, WantedOutput
from xbus.broker.back.log import RETRY_SECONDS, LogReader
from xbus.broker.back.recipients import RecipientFailed, no_output
from xbus.broker.journal.bulk.cleaning import LOST, give_up_lost
from xbus.broker.journal.bulk.outputs import LiveAttempt, read_live_attempts, read_node_id
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes import Write
from xbus.broker.journal.writes.bulk import BeginAttempt, EndAttempt, RenewAttempt
from xbus.clock import Clock, span
from xbus.errors import JournalUnavailable
from xbus.states import AttemptState

log = logging.getLogger(__name__)

UNWANTED = "nobody is owed it any more"
"""The cause of attempts that were broken off because no delivery waits for their output."""

T = TypeVar("T")


class OutputAttempts:
    """All attempts that count.

    Args:
        journal: where they are written down.
        log: where they are read.
        clock: for leases.
        random: makes their ids.
        lease: for how many seconds a worker may give no sign of life.
    """

    def __init__(self, journal: Journal, log: LogReader, clock: Clock, random: Random, lease: float) -> None:
        self.lease = lease
        self._journal = journal
        self._log = log
        self._clock = clock
        self._random = random
        self._by_id: dict[UUID, OutputAttempt] = {}
        # Those that are ready become many over the years, and these are looked at every second.
        self._building: dict[UUID, OutputAttempt] = {}
        self._of_event: defaultdict[UUID, dict[WantedOutput, OutputAttempt]] = defaultdict(dict)

    async def load(self) -> None:
        """Take up the attempts in the journal; known ones stay as they are."""
        for live in await self._log.read(read_live_attempts):
            if live.attempt_id not in self._by_id:
                self._add(self._taken_up(live))

    async def forget_removed(self) -> None:
        """Forget ready outputs that were removed together with their envelope."""
        ready = [attempt for attempt in self._by_id.values() if attempt.state is AttemptState.READY]
        live = {attempt.attempt_id for attempt in await self._log.read(read_live_attempts)}
        for attempt in ready:
            if attempt.id not in live:
                self._drop(attempt)

    async def lost(self, attempt_id: UUID, cause: str) -> RecipientFailed:
        """Discard a ready output that lacks items, as soon as the database can be written; it is made anew.

        Returns:
            The failure of the deliveries that wanted it. It blames no recipient.
        """
        journal, now = self._journal, self._clock.now()
        attempt = self._by_id.get(attempt_id)
        await _insist(lambda: journal.run(give_up_lost, journal.name, attempt_id, cause, now))
        attempt = self._by_id.get(attempt_id, attempt)
        log.error("output lost: %s", cause, extra={"action": LOST, "attempt_id": attempt_id})
        if attempt is not None and attempt.state is AttemptState.READY:
            attempt.state = AttemptState.ABANDONED
            self._drop(attempt)
        return no_output(None, None if attempt is None else attempt.output.event_id, LOST, cause)

    def __contains__(self, event_id: object) -> bool:
        """Check whether an event has any attempt."""
        return event_id in self._of_event

    def get(self, output: WantedOutput) -> OutputAttempt | None:
        """Give the attempt of an output that counts."""
        return self._of_event.get(output.event_id, {}).get(output)

    def by_id(self, attempt_id: UUID) -> OutputAttempt | None:
        """Give an attempt that counts."""
        return self._by_id.get(attempt_id)

    def of_event(self, event: LogEvent) -> Iterator[OutputAttempt]:
        """Iterate over the attempts of an event, by the graph that it takes."""
        for output, attempt in self._of_event.get(event.event_id, {}).items():
            if output.graph_id == event.graph_id:
                yield attempt

    def building(self) -> list[OutputAttempt]:
        """List the attempts in the making."""
        return [attempt for attempt in self._building.values() if attempt.is_building]

    def in_hand(self) -> list[OutputAttempt]:
        """List the attempts that workers make now."""
        return [attempt for attempt in self._building.values() if attempt.is_in_hand]

    def is_ready(self, output: WantedOutput) -> bool:
        """Check whether an output is ready."""
        attempt = self.get(output)
        return attempt is not None and attempt.state is AttemptState.READY

    async def begin(
        self, output: WantedOutput, envelope_id: UUID, role_id: int, event_items: int
    ) -> OutputAttempt | None:
        """Have it durable that a worker is about to be asked; None where another attempt of the output counts.

        Raises:
            JournalError: it can't be kept, and never could.
        """
        node_id = await self._log.read(read_node_id, output.graph_id, output.node)
        attempt_id = UUID(int=self._random.getrandbits(128), version=4)
        now = self._clock.now()
        until = now + span(self.lease)
        try:
            is_begun = await self._write(BeginAttempt(attempt_id, output.event_id, node_id, role_id, now, until))
        except asyncio.CancelledError:
            # It may be on its way into the journal, and would count until its lease is over.
            ended = EndAttempt(attempt_id, AttemptState.ABANDONED, now, "unwanted", UNWANTED)
            self._journal.write(ended).add_done_callback(_log_failure)
            raise
        if not is_begun:
            await self.load()
            return None
        began = self._clock.monotonic()
        attempt = OutputAttempt(
            attempt_id,
            output,
            envelope_id,
            role_id,
            AttemptState.BUILDING,
            now,
            began + self.lease,
            event_items,
            began,
        )
        self._add(attempt)
        return attempt

    def renew(self, attempt: OutputAttempt, progress: float) -> None:
        """Note a sign of life; it is written down soon, and nobody need wait for that."""
        attempt.deadline = self._clock.monotonic() + self.lease
        attempt.progress = progress
        until = self._clock.now() + span(self.lease)
        self._journal.write(RenewAttempt(attempt.id, until, progress)).add_done_callback(_log_failure)

    def extend(self, seconds: float) -> None:
        """Give all that is being made so much longer for a sign of life."""
        for attempt in self.building():
            attempt.deadline += seconds

    async def end(
        self,
        attempt: OutputAttempt,
        state: AttemptState,
        *,
        code: str | None = None,
        cause: str | None = None,
        items: int | None = None,
        data_bytes: int | None = None,
        hash: bytes | None = None,
    ) -> bool:
        """Have it durable that an attempt is over, as soon as the database can be written.

        Returns:
            Whether it was building until now.

        Raises:
            JournalError: it can't be ready, as something else is there than was said.
        """
        if not attempt.is_building:
            return False
        attempt.is_ending = True
        write = EndAttempt(attempt.id, state, self._clock.now(), code, cause, items, data_bytes, hash)
        try:
            was_building = await self._write(write)
        finally:
            attempt.is_ending = False
        attempt.state = state if was_building else AttemptState.ABANDONED
        attempt.items = items
        self._building.pop(attempt.id, None)
        if attempt.state is not AttemptState.READY:
            self._drop(attempt)
        attempt.over.set()
        return was_building

    def _taken_up(self, live: LiveAttempt) -> OutputAttempt:
        # Its worker could not renew it while the broker was away.
        left = max((live.lease_until - self._clock.now()).total_seconds(), self.lease)
        output = WantedOutput(live.event_id, live.graph_id, live.node)
        return OutputAttempt(
            live.attempt_id,
            output,
            live.envelope_id,
            live.role_id,
            live.state,
            live.started_at,
            self._clock.monotonic() + left,
            live.event_items,
            progress=live.progress,
            items=live.items,
        )

    def _add(self, attempt: OutputAttempt) -> None:
        self._by_id[attempt.id] = attempt
        if attempt.state is AttemptState.BUILDING:
            self._building[attempt.id] = attempt
        self._of_event[attempt.output.event_id][attempt.output] = attempt

    def _drop(self, attempt: OutputAttempt) -> None:
        self._by_id.pop(attempt.id, None)
        of_event = self._of_event[attempt.output.event_id]
        if of_event.get(attempt.output) is attempt:
            del of_event[attempt.output]
        if not of_event:
            del self._of_event[attempt.output.event_id]

    async def _write(self, write: Write[T]) -> T:
        return await _insist(lambda: self._journal.write(write))


async def _insist(write: Callable[[], Awaitable[T]]) -> T:
    """Repeat a write until the database takes it, and give its answer."""
    while True:
        try:
            return await write()
        except JournalUnavailable as error:
            log.warning("attempt not written: %s", error, extra={"action": "attempt_unwritten"})
            await asyncio.sleep(RETRY_SECONDS)


def _log_failure(written: "asyncio.Future[bool]") -> None:
    error = None if written.cancelled() else written.exception()
    if error is not None:
        log.info("lease not written: %s", error, extra={"action": "lease_unwritten"})
