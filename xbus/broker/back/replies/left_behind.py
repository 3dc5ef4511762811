"""Envelopes that roles may have open though the broker has no open reply: each role is asked to forget them."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import OpenReplies
from xbus.broker.back.recipients import RecipientFailed, RecipientProxy
from xbus.broker.back.replies.records import ReplyRecords, moves_to_given
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.deliveries import read_role_services
from xbus.broker.journal.log.replies import read_asks, read_held_replies
from xbus.broker.journal.writes import MoveReply
from xbus.states import ReplyState


class LeftBehind:
    """Remembers for each role what it may keep open, until its recipient has forgotten it.

    Args:
        open_replies: those of this run of the broker.
        records: write down that nothing is open any more.
        tasks: send ``stop_envelope`` to recipients.
    """

    def __init__(self, open_replies: OpenReplies, records: ReplyRecords, tasks: asyncio.TaskGroup) -> None:
        self._open_replies = open_replies
        self._records = records
        self._tasks = tasks
        self._moves: defaultdict[int, defaultdict[UUID, list[MoveReply]]] = defaultdict(lambda: defaultdict(list))

    async def recover(self, journal: Journal, log: LogReader) -> None:
        """Learn what the last run of the broker left open.

        Args:
            journal: where that is found.
            log: where graphs are read.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        for reply in await journal.read(read_held_replies):
            if reply.role_id is not None:
                move = MoveReply(reply.event_id, reply.envelope_id, ReplyState.GIVEN)
                self._note(reply.role_id, reply.envelope_id, move)
        services = await journal.read(read_role_services)
        for ask in await journal.read(read_asks):
            # Without a reply nobody knows yet to which recipient it was handed.
            graph = await log.graph(ask.event.graph_id)
            for role_id, service in services.items():
                if service in graph.consumer_services:
                    self._note(role_id, ask.envelope_id)

    def _note(self, role_id: int, envelope_id: UUID, *moves: MoveReply) -> None:
        """Note what a role may have open, and what to write when it has not."""
        self._moves[role_id][envelope_id] += moves
        self._open_replies.mark_maybe_open(envelope_id, role_id)

    def joined(self, recipient: RecipientProxy) -> None:
        """Have a consumer forget what it may have open from an earlier registration."""
        for envelope_id, moves in self._moves.pop(recipient.role.id, {}).items():
            self._tasks.create_task(self._have_forgotten(recipient, envelope_id, moves))

    async def _have_forgotten(self, recipient: RecipientProxy, envelope_id: UUID, moves: Sequence[MoveReply]) -> None:
        try:
            await recipient.stop_envelope(envelope_id)
        except RecipientFailed:
            # The next run of the broker repeats this for all that stays in the journal; for a lost recipient it happens
            # before that.
            if recipient.is_closed:
                self._note(recipient.role.id, envelope_id, *moves)
            return
        self._open_replies.mark_closed(envelope_id, recipient.role.id)
        for move in moves:
            await self._records.write(move)

    def parted(self, recipient: RecipientProxy) -> None:
        """Take the open replies of a lost recipient, which may still have them open; after the seal they are
        redelivered."""
        for open_reply in self._open_replies.lose(recipient):
            open_reply.forget_expiry()
            open_reply.run.stop()
            self._note(recipient.role.id, open_reply.envelope_id, *moves_to_given(open_reply))
