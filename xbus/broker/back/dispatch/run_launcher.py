"""Begins runs: takes the slots of their consumers, and lets what these hold open go first."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.run_executor import RunExecutor
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, OpenReplies, transitions
from xbus.broker.back.recipients import RecipientProxy, ServedRole
from xbus.broker.back.run import BackRunContext, Run
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow


class RunLauncher:
    """The only place where runs of sealed envelopes begin.

    Args:
        ledger: gets the row of what is carried on.
        roles: which of them want order.
        gathering: takes the consumers' slots.
        open_replies: know what consumers keep open already.
        runs: carries runs out.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        roles: ConsumerRoles,
        gathering: ConsumerGathering,
        open_replies: OpenReplies,
        runs: RunExecutor,
    ) -> None:
        self._ledger = ledger
        self._roles = roles
        self._gathering = gathering
        self._open_replies = open_replies
        self._runs = runs

    def carry_on(self, envelope: LogEnvelope, recipient: RecipientProxy) -> bool:
        """Carry on what a recipient holds open since it gave an immediate reply; false where that is nothing.

        It may be far ahead of its turn, so it gets a row of its own.
        """
        open_reply = self._open_replies.take(envelope.envelope_id, recipient)
        if open_reply is None:
            return False
        row = transitions.after_reply(self._ledger.before_its_turn(envelope, recipient.role.id))
        self._ledger.move(None, row)
        self._runs.begin(envelope, [recipient], {recipient.role.id: row}, open_reply.run)
        return True

    def carry_on_all(self, envelope: LogEnvelope) -> None:
        """Recipients that hold an envelope open go on with it first: their workers have a part of it already."""
        for open_reply in self._open_replies.all():
            if open_reply.envelope_id == envelope.envelope_id:
                self.carry_on(envelope, open_reply.recipient)

    async def gather(
        self,
        envelope: LogEnvelope,
        recipients: Sequence[ServedRole],
        may_go: Callable[[ServedRole], bool],
    ) -> list[RecipientProxy]:
        """Wait until all that may go have a free slot, and take it. Recipients that go away meanwhile are left out.

        Args:
            may_go: whether a recipient may still go; asked again after each wait.

        Returns:
            For each that goes the instance whose slot was taken; begin a run for them, or give each back.
        """
        self.carry_on_all(envelope)
        for recipient in recipients:
            await self.predecessor_over(recipient)
            role = self._roles[recipient.role.id]
            await role.keys_in_hand.free(role.keys.key(envelope))
        return await self._gathering.take(recipients, may_go)

    async def predecessor_over(self, recipient: ServedRole) -> None:
        """Wait, where a role wants order, until the fate of its earlier envelopes is known."""
        role = self._roles[recipient.role.id]
        if role.keys.is_wanted:
            await role.predecessors_over(recipient)

    def begin(
        self,
        envelope: LogEnvelope,
        consumers: Sequence[RecipientProxy],
        rows: Mapping[int, DeliveryRow],
        context: BackRunContext,
        *,
        again: bool = False,
    ) -> "asyncio.Task[None]":
        """Begin a run.

        Args:
            consumers: those that it is for; their slots are taken.
            rows: the delivery rows of those that don't get it in its turn, by role id, with this attempt counted.
            context: what it lives on.
            again: whether some of them may have got it before; it is seen to here that they hold nothing open of it.

        Returns:
            The task that is done when all that came of it is noted.
        """
        again = again or self._open_replies.may_be_open(envelope.envelope_id, consumers)
        attempt = max((row.attempts for row in rows.values()), default=1)
        run = Run(envelope.envelope_id, consumers, context, again=again, attempt=attempt)
        return self._runs.begin(envelope, consumers, rows, run)
