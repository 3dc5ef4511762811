"""Writes down what becomes of immediate replies, and tells the front of it."""

import asyncio
import logging
from collections.abc import Callable

from xbus.broker.back.progress import DeliveryLedger, OpenReply
from xbus.broker.back.replies.choice import NoReply
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.replies import Ask
from xbus.broker.journal.writes import MoveReply
from xbus.errors import JournalError
from xbus.rpc.codec import Value, pack
from xbus.states import ReplyState

log = logging.getLogger(__name__)


class ReplyRecords:
    """The rows of replies.

    Args:
        journal: makes them durable.
        ledger: takes note of deliveries.
        tasks: write a reply that nobody waits for.
        ring: tells the front of a reply.
    """

    def __init__(
        self, journal: Journal, ledger: DeliveryLedger, tasks: asyncio.TaskGroup, ring: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._ledger = ledger
        self._tasks = tasks
        self._ring = ring

    async def keep(self, ask: Ask, role_id: int, reply: Value) -> None:
        """Make a reply durable, and tell the front of it; its consumer keeps the envelope open.

        Raises:
            JournalError: the reply could not be written.
        """
        held = MoveReply(ask.event.event_id, ask.envelope_id, ReplyState.HELD, role_id, pack(reply))
        await self._journal.write(held)
        self._ring()

    async def fail(self, ask: Ask, failure: NoReply) -> None:
        """Note that no reply comes, and tell the front of it."""
        log.info(
            "no immediate reply: %s",
            failure.cause,
            extra={"action": failure.code, "envelope_id": ask.envelope_id, "event_id": ask.event.event_id},
        )
        await self.write(
            MoveReply(ask.event.event_id, ask.envelope_id, ReplyState.FAILED, code=failure.code, cause=failure.cause)
        )
        self._ring()

    def note_given(self, open_reply: OpenReply) -> None:
        """Note soon that no consumer keeps an envelope open any more for its replies."""
        work = self._write_given(open_reply)
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            # The broker is ending: the next run finds it held, and tells the consumer once more to forget it.
            work.close()

    async def _write_given(self, open_reply: OpenReply) -> None:
        # Not before the row of an open reply that is carried on: until then a crash leaves it to be stopped.
        await self._ledger.written()
        for move in moves_to_given(open_reply):
            await self.write(move)

    async def write(self, move: MoveReply) -> None:
        """Move a row, as far as the database can now."""
        try:
            await self._journal.write(move)
        except JournalError as error:
            # A row that stays as it was is looked at again, here or by the next run of the broker.
            log.warning("a reply is not moved: %s", error, extra={"action": "reply_unmoved"})


def moves_to_given(open_reply: OpenReply) -> list[MoveReply]:
    """List the moves to write when an envelope is no longer kept open."""
    return [MoveReply(event_id, open_reply.envelope_id, ReplyState.GIVEN) for event_id in open_reply.event_ids]
