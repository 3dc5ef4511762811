"""All runs that go on: begun, carried out one after another where they are of one envelope, and ended."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from xbus import tracing
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, OpenReplies, RunResults, transitions
from xbus.broker.back.recipients import RecipientProxy, RoleEvents, ServedRole, own_fault
from xbus.broker.back.run import BackRunContext, Run
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow, IsolatedItem
from xbus.states import DeliveryState


class RunExecutor:
    """Brings envelopes to consumers whose slots are taken, and sees to it that what comes of it is noted.

    Args:
        ledger: where it is noted.
        context: where slots are given back.
        gathering: told how long each consumer took.
        results: decides what becomes of what went wrong.
        roles: what is being brought to whom.
        tasks: where runs run.
        events: told of a role for which an envelope was set aside that comes again.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        context: BackRunContext,
        gathering: ConsumerGathering,
        results: RunResults,
        roles: ConsumerRoles,
        tasks: asyncio.TaskGroup,
        events: RoleEvents,
    ) -> None:
        self._ledger = ledger
        self._context = context
        self._gathering = gathering
        self._results = results
        self._roles = roles
        self._tasks = tasks
        self._events = events
        self._running: set[asyncio.Task[None]] = set()

    def begin(
        self, envelope: LogEnvelope, recipients: Sequence[RecipientProxy], rows: Mapping[int, DeliveryRow], run: Run
    ) -> "asyncio.Task[None]":
        """Begin a run.

        Args:
            recipients: the consumers that it is for; their slots are taken.
            rows: the delivery rows of those that don't get it in its turn, by role id, with this attempt counted.

        Returns:
            The task that is done when all that came of it is noted.
        """
        for recipient in recipients:
            role = self._roles[recipient.role.id]
            role.in_flight.begin(envelope.position)
            role.keys_in_hand.begin(envelope.position, role.keys.key(envelope))
        for role_id in rows:
            self._roles[role_id].in_flight.outdate(envelope.position)
        work = self._carry_out(envelope, recipients, rows, run)
        if envelope.head.headers is not None:
            work = self._traced(envelope, recipients, run, work)
        task = self._tasks.create_task(work, name=f"run {envelope.position}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        for recipient in recipients:
            self._roles[recipient.role.id].bring_by(task)
        return task

    @staticmethod
    async def _traced(
        envelope: LogEnvelope, recipients: Sequence[RecipientProxy], run: Run, work: Coroutine[Any, Any, None]
    ) -> None:
        roles = ", ".join(each.role.login for each in recipients)
        about: tracing.Attributes = {"xbus.position": envelope.position, "xbus.roles": roles}
        with tracing.following("deliver", [(envelope.envelope_id, envelope.head.headers)], about) as spans:
            await work
            for span in spans.values():
                span.end("; ".join(str(failure) for failure in run.failures.values()))

    async def _carry_out(
        self, envelope: LogEnvelope, recipients: Sequence[RecipientProxy], rows: Mapping[int, DeliveryRow], run: Run
    ) -> None:
        def settled(recipient: RecipientProxy) -> None:
            self._results.settled(envelope, recipient, rows.get(recipient.role.id))

        in_turn = [recipient.role.id for recipient in recipients if recipient.role.id not in rows]
        turn = self._context.turn(envelope.id)
        bad_items: Mapping[int, Sequence[IsolatedItem]] = {}
        try:
            await turn.acquire()
            try:
                await self._ledger.reserve(in_turn, envelope.position)
                before = {recipient: recipient.busy_seconds for recipient in recipients}
                await run.carry_out(envelope, settled)
                self._gathering.note_run({each: each.busy_seconds - busy for each, busy in before.items()})
            finally:
                self._end_turn(turn, run)
            bad_items = await self._results.bad_items(envelope, recipients, run.failures)
        except Exception as error:
            # A fault of ours with this envelope: it is parked, and all others go on.
            log.exception("a run died", extra={"action": "run_died", "envelope_id": envelope.envelope_id})
            run.fail_all(own_fault(error))
        retried = self._note(envelope, recipients, rows, run, bad_items)
        try:
            if run.failures or any(row.state is not DeliveryState.HELD for row in rows.values()):
                # Whoever reads rows must not find one of this run as it was before.
                await self._ledger.written()
        finally:
            for recipient in recipients:
                self._roles[recipient.role.id].in_flight.end(envelope.position)
        ordered = [role_id for role_id in rows if self._roles[role_id].keys.is_wanted]
        for role_id in {*retried, *ordered}:
            self._events.rows_due.publish(role_id)

    def _note(
        self,
        envelope: LogEnvelope,
        recipients: Sequence[RecipientProxy],
        rows: Mapping[int, DeliveryRow],
        run: Run,
        bad_items: Mapping[int, Sequence[IsolatedItem]],
    ) -> Sequence[int]:
        """Give the consumers back and note what came of the run, in one go: no other run may begin in between.

        Returns:
            The ids of the roles for which it comes again.
        """
        for recipient in recipients:
            self._context.release_slot(recipient)
        for worker in run.workers_done:
            self._results.worked(worker)
        retried = self._results.failed(envelope, recipients, rows, run.failures, bad_items)
        for recipient in recipients:
            self._roles[recipient.role.id].keys_in_hand.end([envelope.position])
        return retried

    def _end_turn(self, turn: asyncio.Lock, run: Run) -> None:
        """Let the next run of the same envelope begin, as soon as nobody rolls back what this one has left."""
        if run.is_stopped:
            turn.release()
        else:
            self._context.spawn(self._end_turn_when_stopped(turn, run))

    @staticmethod
    async def _end_turn_when_stopped(turn: asyncio.Lock, run: Run) -> None:
        await run.stopped()
        turn.release()

    async def finish(self, seconds: float) -> None:
        """Wait for the runs that are under way; those that take longer are broken off, and come again."""
        await finish_tasks(self._running, seconds)


async def finish_tasks(tasks: Collection["asyncio.Task[None]"], seconds: float) -> None:
    """Wait for tasks, and cancel those that take longer."""
    if not tasks:
        return
    _, late = await asyncio.wait(list(tasks), timeout=seconds)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late)


log = logging.getLogger(__name__)


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
        *,
        holds_key: bool = False,
    ) -> list[RecipientProxy]:
        """Wait until all that may go have a free slot, and take it. Recipients that go away meanwhile are left out.

        Args:
            may_go: whether a recipient may still go; asked again after each wait.
            holds_key: whether its ordering key is in hand for it, and need not be waited for.

        Returns:
            For each that goes the instance whose slot was taken; begin a run for them, or give each back.
        """
        self.carry_on_all(envelope)
        for recipient in recipients:
            await self.predecessor_over(recipient)
            role = self._roles[recipient.role.id]
            if not holds_key:
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
