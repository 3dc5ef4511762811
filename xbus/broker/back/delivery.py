"""Bringing envelopes to recipients: who takes part in a run, and what comes of it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID
from weakref import WeakValueDictionary

from xbus.broker.back import fate
from xbus.broker.back.failures import own_fault
from xbus.broker.back.holds import Holds
from xbus.broker.back.isolating import Isolating
from xbus.broker.back.ledger import Ledger
from xbus.broker.back.log import Log
from xbus.broker.back.muster import Muster
from xbus.broker.back.order import Order
from xbus.broker.back.outcomes import Outcomes
from xbus.broker.back.probing import Probing
from xbus.broker.back.recipient import Recipient
from xbus.broker.back.registry import Registry
from xbus.broker.back.run import Run
from xbus.broker.back.supplies import Supplies
from xbus.broker.journal.log import LogEnvelope
from xbus.broker.journal.overlays import read_overlays
from xbus.broker.journal.writes import Delivery, IsolatedItem
from xbus.states import DeliveryState

log = logging.getLogger(__name__)


class Deliveries:
    """All runs, and the rules of who is in one.

    Args:
        log: where items are read.
        ledger: where it is noted what came of it.
        registry: who is there.
        supplies: what runs live on.
        muster: takes the consumers' slots.
        holds: what consumers hold open already.
        outcomes: where it is noted what came of runs.
        probing: who is in trouble, and gets less.
        order: which envelopes have to wait for others of their ordering key.
        isolating: which bad items are parked alone.
        tasks: where runs run.
        worker_grace: for how many seconds an envelope waits in line for an absent worker, before it is set aside.
    """

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        registry: Registry,
        supplies: Supplies,
        muster: Muster,
        holds: Holds,
        outcomes: Outcomes,
        probing: Probing,
        order: Order,
        isolating: Isolating,
        tasks: asyncio.TaskGroup,
        *,
        worker_grace: float,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._registry = registry
        self._supplies = supplies
        self._muster = muster
        self._holds = holds
        self._outcomes = outcomes
        self._probing = probing
        self._order = order
        self._isolating = isolating
        self._tasks = tasks
        self._worker_grace = worker_grace
        self._runs: set[asyncio.Task[None]] = set()
        self._last_runs: dict[int, tuple[Recipient, asyncio.Task[None]]] = {}
        self._in_flight: dict[int, set[int]] = {}
        self._taken_up: dict[int, set[int]] = {}
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()
        self.on_retry: Callable[[int], None] = lambda role_id: None
        """Told of a role for which an envelope was set aside that comes again."""

    # -- who takes part --------------------------------------------------------------------------------------------

    async def deliver(self, envelope: LogEnvelope, recipients: Iterable[Recipient]) -> None:
        """See to it that these recipients get an envelope in its turn; returns as soon as it is on its way, or set
        aside for those whose workers are absent."""
        self._carry_on_held(envelope)
        recipients = list(recipients)
        self._hold(envelope, recipients)
        recipients = [recipient for recipient in recipients if self._may_get_in_turn(recipient, envelope)]
        going: list[Recipient] = []
        # All at once: the grace is for the envelope, not for each of its recipients.
        found = await asyncio.gather(*(self._missing_worker(envelope, recipient) for recipient in recipients))
        for recipient, missing in zip(recipients, found, strict=True):
            if missing is None:
                going.append(recipient)
            elif self._is_due(recipient, envelope):
                new = self._outcomes.before_its_turn(envelope, recipient.role.id)
                self._ledger.move(None, fate.waiting_for(new, missing))
        await self._ledger.room()
        await self._launch(envelope, going)

    def deliver_held(self, envelope: LogEnvelope, recipient: Recipient) -> bool:
        """Carry on what a recipient holds open since it gave an immediate reply; false where that is nothing.

        It may be far ahead of its turn, so it gets a row of its own.
        """
        hold = self._holds.take(envelope.envelope_id, recipient)
        if hold is None:
            return False
        row = fate.after_reply(self._outcomes.before_its_turn(envelope, recipient.role.id))
        self._ledger.move(None, row)
        self._start(envelope, [recipient], {recipient.role.id: row}, hold.run)
        return True

    async def _missing_worker(self, envelope: LogEnvelope, recipient: Recipient) -> str | None:
        """A worker service that a recipient can't get this envelope without, absent for longer than the grace."""
        for service in await self.workers_for(envelope, recipient):
            while (absent_for := self._registry.absent_for(service)) < self._worker_grace:
                if self._registry.is_served(service):
                    break
                await self._registry.arrival(self._worker_grace - absent_for)
            if not self._probing.admits(service):
                return service
        return None

    async def workers_for(self, envelope: LogEnvelope, recipient: Recipient) -> list[str]:
        """The worker services between an envelope's emitter and a recipient."""
        graphs = await self._log.graphs(envelope)
        leading = [graph.leading_to({recipient.role.service}) for graph in graphs]
        return sorted(set().union(*(graph.worker_services for graph in leading)))

    def _carry_on_held(self, envelope: LogEnvelope) -> None:
        """Those who hold an envelope open go on with it first: their workers have a part of it already."""
        for hold in self._holds.all():
            if hold.envelope_id == envelope.envelope_id:
                self.deliver_held(envelope, hold.recipient)

    async def _launch(self, envelope: LogEnvelope, recipients: Sequence[Recipient]) -> None:
        """Start a run as soon as all of its consumers have a free slot; those that go meanwhile are left out."""
        self._carry_on_held(envelope)
        for recipient in recipients:
            await self.predecessor_over(recipient)
        present = await self._muster.take(recipients, lambda recipient: self._may_get_in_turn(recipient, envelope))
        self._hold(envelope, recipients)
        if present:
            again = self._holds.is_doubtful(envelope.envelope_id, present)
            self._start(envelope, present, {}, Run(envelope.envelope_id, present, self._supplies, again=again))

    async def bring(self, envelope: LogEnvelope, recipient: Recipient, row: Delivery) -> "asyncio.Task[None] | None":
        """Bring an envelope that has a row of its own to its role alone, as soon as that has a free slot.

        The attempt is counted when it has one and before anything is handed over; to a role in trouble it is none. What
        was held is in its turn now: it costs no more than that.

        Returns:
            The run; None where there is none, as the recipient has gone, or another envelope has to come first.
        """
        was_held = row.state is DeliveryState.HELD
        supplies = self._supplies if was_held else await self._supplies_for(envelope, recipient)
        self._carry_on_held(envelope)
        await self.predecessor_over(recipient)
        if not await self._muster.take(
            [recipient], lambda recipient: self._may_get_by_row(recipient, envelope) and self._order.is_next(row)
        ):
            return None
        is_probe = self._probing.is_troubled(recipient.role.id)
        if was_held and not is_probe:
            attempt = fate.begun(row)
        else:
            attempt = fate.probe(row) if is_probe else fate.next_attempt(row)
            await self._count(row, attempt, recipient)
        again = is_probe or fate.may_have_begun(attempt) or self._holds.is_doubtful(envelope.envelope_id, [recipient])
        run = Run(envelope.envelope_id, [recipient], supplies, again=again)
        return self._start(envelope, [recipient], {recipient.role.id: attempt}, run)

    async def _count(self, row: Delivery, attempt: Delivery, recipient: Recipient) -> None:
        """Have it durable that a recipient whose slot is taken is about to get an envelope."""
        self._ledger.move(row, attempt)
        try:
            await self._ledger.written()
        except BaseException:
            self._supplies.give_back(recipient)
            raise

    async def _supplies_for(self, envelope: LogEnvelope, recipient: Recipient) -> Supplies:
        """What a run lives on: only a role that gets an envelope on its own may get it otherwise than it was sent."""
        overlays = await self._log.read(read_overlays, recipient.role.id, envelope.envelope_id)
        return self._supplies.overlaid(overlays)

    def _start(
        self, envelope: LogEnvelope, recipients: Sequence[Recipient], rows: Mapping[int, Delivery], run: Run
    ) -> "asyncio.Task[None]":
        for recipient in recipients:
            self._in_flight.setdefault(recipient.role.id, set()).add(envelope.position)
        for role_id in rows:
            self._taken_up.setdefault(role_id, set()).add(envelope.position)
        work = self._carry_out(envelope, recipients, rows, run)
        task = self._tasks.create_task(work, name=f"run {envelope.position}")
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        self._last_runs.update({recipient.role.id: (recipient, task) for recipient in recipients})
        return task

    async def predecessor_over(self, recipient: Recipient) -> None:
        """Wait until it is known what has become of what was brought to the recipient before this one, of a role that
        wants order."""
        if not self._order.is_wanted_by(recipient.role.id):
            return
        last, run = self._last_runs.get(recipient.role.id, (recipient, None))
        if last is not recipient and run is not None and not run.done():
            await asyncio.wait([run])

    def _may_get(self, recipient: Recipient, envelope: LogEnvelope) -> bool:
        role_id = recipient.role.id
        is_present = self._registry.get(role_id) is recipient
        return is_present and envelope.position not in self.in_flight(role_id)

    def _may_get_by_row(self, recipient: Recipient, envelope: LogEnvelope) -> bool:
        return self._may_get(recipient, envelope) and not self.is_withdrawn(recipient.role.id, envelope.position)

    def withdraw(self, role_id: int, position: int) -> None:
        """Have the row of an envelope not taken up by those who have read it already: it is settled, or changed."""
        self._taken_up.setdefault(role_id, set()).add(position)

    def is_withdrawn(self, role_id: int, position: int) -> bool:
        """Whether a row that was read is out of date: begun with since, or withdrawn."""
        return position in self._taken_up.get(role_id, ())

    def _may_get_in_turn(self, recipient: Recipient, envelope: LogEnvelope) -> bool:
        is_kept = self._probing.is_troubled(recipient.role.id) or self._order.holds(recipient.role.id, envelope)
        return self._is_due(recipient, envelope) and not is_kept and self._may_get(recipient, envelope)

    def _is_due(self, recipient: Recipient, envelope: LogEnvelope) -> bool:
        """Whether nothing has become of it for its role yet."""
        cursor = self._ledger.cursor(recipient.role.id)
        return cursor is not None and not cursor.is_settled(envelope.position)

    def _hold(self, envelope: LogEnvelope, recipients: Iterable[Recipient]) -> None:
        """Have an envelope wait for an earlier one of its ordering key, where roles want that."""
        for recipient in recipients:
            is_held = self._order.holds(recipient.role.id, envelope)
            if is_held and self._is_due(recipient, envelope) and self._may_get(recipient, envelope):
                self._ledger.move(None, fate.held(self._outcomes.before_its_turn(envelope, recipient.role.id)))

    def in_flight(self, role_id: int) -> frozenset[int]:
        """The positions of the envelopes that runs are bringing to a role just now."""
        return frozenset(self._in_flight.get(role_id, ()))

    def taken_up(self, role_id: int) -> set[int]:
        """What is not to be taken up of the rows of a role that are read from now on.

        Returns:
            The positions of the envelopes that runs are bringing to it, to which those are added that runs begin with
            until this is called again: a run may begin and end while rows are read, and its row be found all the same.
        """
        self._taken_up[role_id] = set(self.in_flight(role_id))
        return self._taken_up[role_id]

    # -- a run -----------------------------------------------------------------------------------------------------

    async def _carry_out(
        self, envelope: LogEnvelope, recipients: Sequence[Recipient], rows: Mapping[int, Delivery], run: Run
    ) -> None:
        def settled(recipient: Recipient) -> None:
            self._outcomes.settled(envelope, recipient, rows.get(recipient.role.id))

        in_turn = [recipient.role.id for recipient in recipients if recipient.role.id not in rows]
        # Runs of one envelope for several roles may need the same worker, which would get its events mixed.
        turn = self._turns.setdefault(envelope.envelope_id, asyncio.Lock())
        bad_items: Mapping[int, Sequence[IsolatedItem]] = {}
        try:
            await turn.acquire()
            try:
                await self._ledger.reserve(in_turn, envelope.position)
                before = {recipient: recipient.busy_seconds for recipient in recipients}
                await run.carry_out(envelope, settled)
                self._muster.note_run({each: each.busy_seconds - busy for each, busy in before.items()})
            finally:
                self._end_turn(turn, run)
            bad_items = await self._isolating.bad_items(envelope, recipients, run.failures)
        except Exception as error:
            # A fault of ours with this envelope: it is parked, and all others go on.
            log.exception("a run died", extra={"action": "run_died", "envelope_id": envelope.envelope_id})
            run.fail_all(own_fault(error))
        # From here to what is noted of the failures nothing may wait: another run could begin in between.
        for recipient in recipients:
            self._supplies.give_back(recipient)
        for worker in run.workers_done:
            self._outcomes.worked(worker)
        retried = self._outcomes.failed(envelope, recipients, rows, run.failures, bad_items)
        try:
            if run.failures or any(row.state is not DeliveryState.HELD for row in rows.values()):
                # Whoever reads rows must not find one of this run as it was before.
                await self._ledger.written()
        finally:
            for recipient in recipients:
                self._in_flight[recipient.role.id].discard(envelope.position)
        for role_id in {*retried, *filter(self._order.is_wanted_by, rows)}:
            self.on_retry(role_id)

    def _end_turn(self, turn: asyncio.Lock, run: Run) -> None:
        """Let the next run of the same envelope begin, as soon as nobody rolls back what this one has left."""
        if run.is_stopped:
            turn.release()
        else:
            self._supplies.spawn(self._end_turn_when_stopped(turn, run))

    @staticmethod
    async def _end_turn_when_stopped(turn: asyncio.Lock, run: Run) -> None:
        await run.stopped()
        turn.release()

    async def finish(self, seconds: float) -> None:
        """Wait for the runs that are under way; those that take longer are broken off, and come again."""
        if self._runs:
            _, late = await asyncio.wait(self._runs, timeout=seconds)
            for run in late:
                run.cancel()
            if late:
                await asyncio.wait(late)

    def highest_in_flight(self) -> dict[int, int]:
        """For each role the highest position that was handed over and not settled."""
        return {role_id: max(positions) for role_id, positions in self._in_flight.items() if positions}
