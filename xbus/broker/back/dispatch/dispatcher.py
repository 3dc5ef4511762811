"""Bringing envelopes to recipients: who takes part in a run, in an envelope's turn and by a row of its own."""

import asyncio
from collections.abc import Iterable, Sequence

from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.requirements import OutputRequirements
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.dispatch.run_executor import RunExecutor
from xbus.broker.back.log.reader import LogReader
from xbus.broker.back.progress import transitions
from xbus.broker.back.progress.blocked_keys import BlockedKeys
from xbus.broker.back.progress.in_flight import InFlight
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.progress.open_replies import OpenReplies
from xbus.broker.back.progress.results import RunResults
from xbus.broker.back.recipients.gathering import ConsumerGathering
from xbus.broker.back.recipients.probing import BreakerProbes
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.run.context import BackRunContext
from xbus.broker.back.run.run import Run
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import DeliveryState


class Dispatcher:
    """The rules of who is in a run.

    Args:
        log: where items are read.
        ledger: where it is noted what came of it.
        registry: who is there.
        supplies: what runs live on.
        muster: takes the consumers' slots.
        holds: what consumers hold open already.
        outcomes: makes the rows of what has none yet.
        probing: who is in trouble, and gets less.
        order: which envelopes have to wait for others of their ordering key.
        runs: begun here.
        under_way: what is being brought to whom.
        needs: which outputs are to be ready before consumers are started.
        outputs: has bulk workers make them.
        awaiting: the deliveries that wait for that.
        worker_grace: for how many seconds an envelope waits in line for an absent worker, before it is set aside.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        registry: Registry,
        supplies: BackRunContext,
        muster: ConsumerGathering,
        holds: OpenReplies,
        outcomes: RunResults,
        probing: BreakerProbes,
        order: BlockedKeys,
        runs: RunExecutor,
        under_way: InFlight,
        needs: OutputRequirements,
        outputs: BulkOutputs,
        awaiting: WaitingDeliveries,
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
        self._runs = runs
        self._under_way = under_way
        self._needs = needs
        self._outputs = outputs
        self._awaiting = awaiting
        self._worker_grace = worker_grace

    async def deliver(self, envelope: LogEnvelope, recipients: Iterable[RecipientProxy]) -> Sequence[RecipientProxy]:
        """See to it that these recipients get an envelope in its turn; returns as soon as it is on its way, or set
        aside for those whose workers are absent or have something to make first.

        Returns:
            Those that could get it all the same, as they held the others up, or what held them was settled meanwhile.
        """
        self._carry_on_holds(envelope)
        wanted = list(recipients)
        self._hold_behind(envelope, wanted)
        recipients = [recipient for recipient in wanted if self._may_get_in_turn(recipient, envelope)]
        overlaid = (await self._log.overlays(envelope)).keys()
        going: list[RecipientProxy] = []
        # All at once: the grace is for the envelope, not for each of its recipients.
        found = await asyncio.gather(*(self._missing_worker(envelope, recipient) for recipient in recipients))
        for recipient, missing in zip(recipients, found, strict=True):
            service = recipient.role.service
            lacking = await self._needs.lacking(envelope, service, overlaid) if missing is None else ()
            if missing is None and not lacking:
                going.append(recipient)
            elif self._is_due(recipient, envelope):
                new = self._outcomes.before_its_turn(envelope, recipient.role.id)
                if missing is not None:
                    self._ledger.move(None, transitions.waiting_for(new, missing))
                else:
                    self._have_made(envelope, lacking, None, new)
        await self._ledger.room()
        await self._launch(envelope, going)
        return [recipient for recipient in wanted if self._may_get_in_turn(recipient, envelope)]

    def carry_on(self, envelope: LogEnvelope, recipient: RecipientProxy) -> bool:
        """Carry on what a recipient holds open since it gave an immediate reply; false where that is nothing.

        It may be far ahead of its turn, so it gets a row of its own.
        """
        hold = self._holds.take(envelope.envelope_id, recipient)
        if hold is None:
            return False
        row = transitions.after_reply(self._outcomes.before_its_turn(envelope, recipient.role.id))
        self._ledger.move(None, row)
        self._runs.begin(envelope, [recipient], {recipient.role.id: row}, hold.run)
        return True

    async def _missing_worker(self, envelope: LogEnvelope, recipient: RecipientProxy) -> str | None:
        """A worker service that a recipient can't get this envelope without, absent for longer than the grace."""
        for service in await self.workers_for(envelope, recipient):
            while (absent_for := self._registry.absent_for(service)) < self._worker_grace:
                if self._registry.is_served(service):
                    break
                await self._registry.arrival(self._worker_grace - absent_for)
            if not self._probing.admits(service):
                return service
        return None

    def _have_made(
        self,
        envelope: LogEnvelope,
        lacking: Sequence[tuple[LogEvent, WantedOutput]],
        old: DeliveryRow | None,
        new: DeliveryRow,
    ) -> None:
        """Have what a delivery lacks made; it waits for that, and holds nobody."""
        self._awaiting.set_aside(envelope, old, new, [output for _, output in lacking])
        self._outputs.make(envelope, lacking)

    async def workers_for(self, envelope: LogEnvelope, recipient: RecipientProxy) -> list[str]:
        """The worker services between an envelope's emitter and a recipient, but for those that have done their work or
        are at it."""
        wanted = {recipient.role.service}
        known = [event for event in envelope.events if self._needs.is_known(event)]
        if known:
            # What is brought otherwise than it was sent takes the whole graph, whatever was made of it.
            overlaid = await self._log.overlays(envelope, recipient.role.id)
            known = [event for event in known if event.event_id not in overlaid]
        plain = {event.graph_id for event in envelope.events if event not in known}
        services = {
            service for each in plain for service in (await self._log.graph(each)).leading_to(wanted).worker_services
        }
        for event in known:
            part = (await self._log.graph(event.graph_id)).leading_to(wanted)
            services |= self._needs.services(event, part)
        return sorted(services)

    def _carry_on_holds(self, envelope: LogEnvelope) -> None:
        """Those who hold an envelope open go on with it first: their workers have a part of it already."""
        for hold in self._holds.all():
            if hold.envelope_id == envelope.envelope_id:
                self.carry_on(envelope, hold.recipient)

    async def _launch(self, envelope: LogEnvelope, recipients: Sequence[RecipientProxy]) -> None:
        """Start a run as soon as all of its consumers have a free slot; those that go meanwhile are left out."""
        self._carry_on_holds(envelope)
        for recipient in recipients:
            await self.predecessor_over(recipient)
        present = await self._muster.take(recipients, lambda recipient: self._may_get_in_turn(recipient, envelope))
        self._hold_behind(envelope, recipients)
        if present:
            again = self._holds.is_doubtful(envelope.envelope_id, present)
            self._runs.begin(envelope, present, {}, Run(envelope.envelope_id, present, self._supplies, again=again))

    async def bring(
        self, envelope: LogEnvelope, recipient: RecipientProxy, row: DeliveryRow
    ) -> "asyncio.Task[None] | None":
        """Bring an envelope that has a row of its own to its role alone, as soon as that has a free slot.

        The attempt is counted when it has one and before anything is handed over; to a role in trouble it is none. What
        was held is in its turn now: it costs no more than that.

        Returns:
            The run; None where there is none, as the recipient has gone, another envelope has to come first, or a bulk
            worker has something to make first.
        """
        was_held = row.state is DeliveryState.HELD
        supplies = self._supplies if was_held else self._supplies.for_role(recipient.role.id)
        overlays = await self._log.overlays(envelope, None if was_held else recipient.role.id)
        lacking = await self._needs.lacking(envelope, recipient.role.service, overlays.keys())
        if lacking:
            if self._may_get_by_row(recipient, envelope):
                self._have_made(envelope, lacking, row, self._order.keyed(row, envelope))
            return None
        self._carry_on_holds(envelope)
        await self.predecessor_over(recipient)
        if not await self._muster.take(
            [recipient], lambda recipient: self._may_get_by_row(recipient, envelope) and self._order.is_next(row)
        ):
            return None
        row = self._order.keyed(row, envelope)
        is_probe = self._probing.is_troubled(recipient.role.id)
        if was_held and not is_probe:
            attempt = transitions.begun(row)
        else:
            attempt = transitions.probe(row) if is_probe else transitions.next_attempt(row)
            await self._count(row, attempt, recipient)
        again = (
            is_probe
            or transitions.may_have_begun(attempt)
            or self._holds.is_doubtful(envelope.envelope_id, [recipient])
        )
        run = Run(envelope.envelope_id, [recipient], supplies, again=again)
        return self._runs.begin(envelope, [recipient], {recipient.role.id: attempt}, run)

    async def _count(self, row: DeliveryRow, attempt: DeliveryRow, recipient: RecipientProxy) -> None:
        """Have it durable that a recipient whose slot is taken is about to get an envelope."""
        self._ledger.move(row, attempt)
        try:
            await self._ledger.written()
        except BaseException:
            self._supplies.give_back(recipient)
            raise

    async def predecessor_over(self, recipient: RecipientProxy) -> None:
        """Wait until it is known what has become of what was brought to the recipient before this one, of a role that
        wants order."""
        if self._order.is_wanted_by(recipient.role.id):
            await self._runs.predecessor_over(recipient)

    def _may_get(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        role_id = recipient.role.id
        is_present = self._registry.get(role_id) is recipient
        return is_present and envelope.position not in self._under_way.to(role_id)

    def _may_get_by_row(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        is_outdated = self._under_way.is_outdated(recipient.role.id, envelope.position)
        return self._may_get(recipient, envelope) and not is_outdated

    def _may_get_in_turn(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        is_kept = self._probing.is_troubled(recipient.role.id) or self._order.holds(recipient.role.id, envelope)
        return self._is_due(recipient, envelope) and not is_kept and self._may_get(recipient, envelope)

    def _is_due(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        """Whether nothing has become of it for its role yet."""
        cursor = self._ledger.cursor(recipient.role.id)
        return cursor is not None and not cursor.is_settled(envelope.position)

    def _hold_behind(self, envelope: LogEnvelope, recipients: Iterable[RecipientProxy]) -> None:
        """Have an envelope wait for an earlier one of its ordering key, where roles want that."""
        for recipient in recipients:
            is_held = self._order.holds(recipient.role.id, envelope)
            if is_held and self._is_due(recipient, envelope) and self._may_get(recipient, envelope):
                self._ledger.move(None, transitions.held(self._outcomes.before_its_turn(envelope, recipient.role.id)))
