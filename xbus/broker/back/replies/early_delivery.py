"""Delivers events ahead of their envelopes: the consumer that replies holds the envelope open until its end."""

import asyncio

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import DeliveryLedger, OpenReplies, OpenReply
from xbus.broker.back.recipients import Absent, RecipientFailed, Registry
from xbus.broker.back.replies.choice import NoReply, replier
from xbus.broker.back.replies.records import ReplyRecords
from xbus.broker.back.run import BackRunContext, Run
from xbus.broker.journal.log.replies import Ask
from xbus.broker.journal.writes import MoveReply
from xbus.rpc.codec import Value
from xbus.states import ReplyState

MAX_TOLD = 10
"""The most errors of a recipient that its emitter gets; the journal keeps all as failures."""


class EarlyDelivery:
    """Asks consumers for replies.

    Args:
        log: reads graphs.
        registry: knows who is registered.
        context: the context of runs.
        ledger: takes note of failures.
        open_replies: what consumers keep open.
        records: make replies durable.
        hold_seconds: for how long a consumer keeps an envelope open without its end.
    """

    def __init__(
        self,
        log: LogReader,
        registry: Registry,
        context: BackRunContext,
        ledger: DeliveryLedger,
        open_replies: OpenReplies,
        records: ReplyRecords,
        hold_seconds: float,
    ) -> None:
        self._log = log
        self._registry = registry
        self._context = context
        self._ledger = ledger
        self.open_replies = open_replies
        self._records = records
        self._hold_seconds = hold_seconds

    async def deliver(self, ask: Ask) -> None:
        """Deliver an event, and make the reply to it durable.

        Raises:
            NoReply: no consumer gave a reply.
            JournalError: the reply could not be written.
        """
        open_reply = await self._open_reply(ask)
        recipient = open_reply.recipient
        event_id = ask.event.event_id
        try:
            reply = await self._ask(open_reply, ask)
            stays_open = self._is_open(open_reply)
            if stays_open:
                open_reply.event_ids.append(event_id)
            await self._records.keep(ask, recipient.role.id, reply)
        except BaseException:
            self.give_up(open_reply)
            # Where it was lost before, workers may have begun since.
            open_reply.run.stop()
            raise
        if not stays_open:
            await self._records.write(MoveReply(event_id, ask.envelope_id, ReplyState.GIVEN))
        elif self._is_open(open_reply):
            open_reply.expiry = asyncio.get_running_loop().call_later(self._hold_seconds, self.give_up, open_reply)

    def give_up(self, open_reply: OpenReply) -> None:
        """Have the recipients forget an open reply, unless it has ended already."""
        if self.open_replies.take(open_reply.envelope_id, open_reply.recipient) is open_reply:
            open_reply.run.stop()
            self._context.release_slot(open_reply.recipient)

    def _is_open(self, open_reply: OpenReply) -> bool:
        return self.open_replies.get(open_reply.envelope_id, open_reply.recipient) is open_reply

    async def _open_reply(self, ask: Ask) -> OpenReply:
        """Give the consumer's open reply of the envelope, or begin one."""
        graph = await self._log.graph(ask.event.graph_id)
        while True:
            recipient = await replier(ask.event.type_name, graph, self._registry)
            known = self.open_replies.of_role(ask.envelope_id, recipient.role.id)
            if known is not None:
                return known
            try:
                instance = await self._context.acquire_slot(recipient)
            except Absent:
                # It has gone before it had a free slot: the next recipient of the role is asked.
                continue
            again = self.open_replies.may_be_open(ask.envelope_id, [instance])
            open_reply = OpenReply(
                ask.envelope_id, instance, Run(ask.envelope_id, [instance], self._context, again=again)
            )
            self.open_replies.add(open_reply)
            return open_reply

    async def _ask(self, open_reply: OpenReply, ask: Ask) -> Value:
        open_reply.forget_expiry()
        open_reply.asking = True
        try:
            return await open_reply.run.ask(ask.event, ask.headers)
        except Absent as absent:
            raise NoReply("reply_failed", f"a worker was lost: {absent}") from absent
        except RecipientFailed as failure:
            self._ledger.fail(ask.envelope_id, failure)
            code = "reply_refused" if failure.code == "refused" else "reply_failed"
            raise NoReply(code, "; ".join(error.message for error in failure.errors[:MAX_TOLD])) from failure
        finally:
            open_reply.asking = False
