"""Immediate replies: the back delivers an event at its end, ahead of its envelope, because the emitter waits.

The consumer that replied keeps the envelope open. After the seal the back delivers the rest and commits. If the
envelope is cancelled, or its end does not come, the consumer is asked to forget it. Rolled back events are redelivered
after the seal like any other, and the first reply remains valid.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from xbus.broker.back.dispatch import RunLauncher
from xbus.broker.back.log import LogReader
from xbus.broker.back.recipients import own_fault
from xbus.broker.back.replies.choice import NoReply
from xbus.broker.back.replies.early_delivery import EarlyDelivery
from xbus.broker.back.replies.records import ReplyRecords
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.log.reading import read_sealed
from xbus.broker.journal.log.replies import Ask, read_asks, read_cancelled
from xbus.errors import JournalUnavailable

log = logging.getLogger(__name__)


class ReplyService:
    """Answers the front's requests for replies.

    Args:
        log: reads the requests.
        early: delivers their events.
        launcher: carries on the open replies of a sealed envelope.
        records: note that no reply comes.
        runtime: its clock says when nobody waits any more; its tasks run all that goes on.
        expects: whether any event type has immediate replies.
    """

    def __init__(
        self,
        log: LogReader,
        early: EarlyDelivery,
        launcher: RunLauncher,
        records: ReplyRecords,
        runtime: Runtime,
        expects: Callable[[], bool],
    ) -> None:
        self._log = log
        self._early = early
        self._open_replies = early.open_replies
        self._launcher = launcher
        self._records = records
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._retry_seconds = runtime.intervals.retry
        self._expects = expects
        self._in_progress: dict[UUID, asyncio.Task[None]] = {}
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self._wake = asyncio.Event()
        # Look at once for requests to the last run of the broker.
        self._wake.set()

    # -- what calls for a look -------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the service look for news soon."""
        if self._in_progress or self._open_replies.open or self._expects():
            self._wake.set()

    async def watch(self) -> None:
        """Look for requests, and for the ends of envelopes that are kept open, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._look()

    def stop(self) -> None:
        """Answer nothing more, and have all that is held open forgotten."""
        for task in self._in_progress.values():
            task.cancel()
        for open_reply in self._open_replies.all():
            if not open_reply.asking:
                self._early.give_up(open_reply)

    async def _look(self) -> None:
        # A request that gets its answer during the read may still appear in it, though nobody waits any more. Its end
        # wakes the service, so the next look finds a repeated request.
        being_answered = set(self._in_progress)
        for ask in await self._log.read(read_asks):
            if ask.event.event_id in being_answered and ask.event.event_id not in self._in_progress:
                continue
            if ask.cancelled:
                self._call_off(ask)
            elif ask.event.event_id not in self._in_progress:
                turn = self._turns.setdefault(ask.envelope_id, asyncio.Lock())
                self._spawn(ask.event.event_id, self._answer(ask, turn))
        await self._look_for_ends()

    def _call_off(self, ask: Ask) -> None:
        in_progress = self._in_progress.get(ask.event.event_id)
        if in_progress is None:
            self._spawn(
                ask.event.event_id, self._records.fail(ask, NoReply("envelope_closed", "its envelope was cancelled"))
            )
        else:
            # Another look follows when it has ended.
            in_progress.cancel()

    def _spawn(self, event_id: UUID, work: Coroutine[Any, Any, None]) -> None:
        def ended(_: object) -> None:
            del self._in_progress[event_id]
            self._wake.set()

        task = self._in_progress[event_id] = self._tasks.create_task(work, name=f"reply to {event_id}")
        task.add_done_callback(ended)

    async def _look_for_ends(self) -> None:
        held = self._open_replies.all()
        if not held:
            return
        envelope_ids = list({open_reply.envelope_id for open_reply in held})
        sealed = {envelope.envelope_id: envelope for envelope in await self._log.read(read_sealed, envelope_ids)}
        cancelled = await self._log.read(read_cancelled, envelope_ids)
        for open_reply in held:
            if open_reply.envelope_id in sealed:
                self._launcher.carry_on(sealed[open_reply.envelope_id], open_reply.recipient)
            elif open_reply.envelope_id in cancelled and not open_reply.asking:
                self._early.give_up(open_reply)

    # -- an answer -------------------------------------------------------------------------------------------------

    async def _answer(self, ask: Ask, turn: asyncio.Lock) -> None:
        seconds = (ask.until - self._clock.now()).total_seconds()
        try:
            async with asyncio.timeout(seconds):
                # The events of an envelope come to a recipient one after another.
                async with turn:
                    await self._early.deliver(ask)
        except TimeoutError:
            await self._records.fail(ask, NoReply("reply_timed_out", "no consumer gave a reply in time"))
        except NoReply as failure:
            await self._records.fail(ask, failure)
        except JournalUnavailable as error:
            # It is asked for again at the next look; not at once, as what can't be written may well be read.
            log.warning("a reply is not written: %s", error, extra={"action": "reply_unwritten"})
            await asyncio.sleep(self._retry_seconds)
        except Exception as error:
            # A fault of ours with this event must not bring all other deliveries down.
            log.exception("a reply died", extra={"action": "reply_died", "envelope_id": ask.envelope_id})
            await self._records.fail(ask, NoReply("reply_failed", own_fault(error).cause))
