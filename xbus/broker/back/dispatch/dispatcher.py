"""Bringing envelopes to recipients: who takes part in a run, in an envelope's turn and by a row of its own."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from xbus.broker.back.bulk import BulkStep
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.page_delivery import PageDelivery
from xbus.broker.back.dispatch.pages import Way
from xbus.broker.back.dispatch.run_executor import RunLauncher
from xbus.broker.back.dispatch.worker_availability import WorkerAvailability
from xbus.broker.back.log import SmallEnvelope
from xbus.broker.back.progress import DeliveryLedger, transitions
from xbus.broker.back.recipients import RecipientProxy, ServedRole
from xbus.broker.back.run import BackRunContext
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import DeliveryState


class Dispatcher:
    """The rules of who is in a run.

    Args:
        ledger: where it is noted what came of it.
        eligibility: who may get an envelope now.
        workers: which workers an envelope needs.
        bulk: what is to be made before consumers are started.
        launcher: begins the runs.
        pages: brings small envelopes together.
        context: what runs live on.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        eligibility: Eligibility,
        workers: WorkerAvailability,
        bulk: BulkStep,
        launcher: RunLauncher,
        pages: PageDelivery,
        context: BackRunContext,
    ) -> None:
        self._ledger = ledger
        self._eligibility = eligibility
        self._workers = workers
        self._bulk = bulk
        self._launcher = launcher
        self._pages = pages
        self._context = context

    def may_bundle(self, envelope: LogEnvelope, recipients: Sequence[ServedRole]) -> bool:
        """Check whether a recipient of an envelope may get small ones of the same graphs together."""
        return bool(self._pages.together(envelope, recipients))

    def deliver_at_once(
        self, smalls: Sequence[SmallEnvelope], ways: Sequence[Way], recipients: Mapping[Way, Sequence[ServedRole]]
    ) -> int:
        """Have the recipients of small envelopes get the first of them, as far as nothing must be waited for.

        Returns how many those are.
        """
        return self._pages.add_at_once(smalls, ways, recipients) if self._ledger.has_room else 0

    async def deliver(
        self,
        envelope: LogEnvelope,
        recipients: Iterable[ServedRole],
        small: SmallEnvelope | None,
        *,
        in_company: bool,
    ) -> Sequence[ServedRole]:
        """See to it that these recipients get an envelope in its turn. Returns as soon as it is on its way, or set
        aside for those whose workers are absent or have something to make first.

        Args:
            small: the envelope with its items, where it is small and they were read.
            in_company: whether others wait while these take their time.

        Returns:
            The recipients that could get it all the same, as they held the others up, or what held them was settled
            meanwhile.
        """
        wanted = list(recipients)
        others = wanted
        if small is not None:
            parties = self._pages.parties(envelope, wanted)
            for party in parties:
                for recipient in party:
                    await self.predecessor_over(recipient)
                await self._pages.add(small, party, in_company=in_company)
            others = [recipient for recipient in wanted if not any(recipient in party for party in parties)]
        if others:
            await self._deliver_in_run(envelope, others, in_company=in_company)
        await self._ledger.room()
        # One that held the others up may be the last in its lane meanwhile. Nobody else would bring it this envelope,
        # or note that it waits for an earlier one of its key.
        return [
            recipient
            for recipient in wanted
            if self._eligibility.in_turn(recipient, envelope) or self._eligibility.is_blocked(recipient, envelope)
        ]

    async def _deliver_in_run(self, envelope: LogEnvelope, wanted: Sequence[ServedRole], *, in_company: bool) -> None:
        self._launcher.carry_on_all(envelope)
        wanted = [each for each in wanted if await self._pages.emptied(each, in_company=in_company)]
        self._block_behind(envelope, wanted)
        recipients = [recipient for recipient in wanted if self._eligibility.in_turn(recipient, envelope)]
        going: list[ServedRole] = []
        found = await self._workers.missing_after_grace(envelope, recipients)
        for recipient, worker in zip(recipients, found, strict=True):
            outputs = await self._bulk.missing(envelope, recipient) if worker is None else ()
            if worker is None and not outputs:
                going.append(recipient)
            elif self._eligibility.is_due(recipient, envelope):
                new = self._ledger.before_its_turn(envelope, recipient.role.id)
                if worker is not None:
                    self._ledger.move(None, transitions.waiting_for(new, worker, self._workers.pause_of(worker)))
                else:
                    self._bulk.set_aside(envelope, outputs, None, new)
        await self._ledger.room()
        await self._launch(envelope, going)

    async def predecessor_over(self, recipient: ServedRole) -> None:
        """Wait, where a role wants order, until the fate of its earlier envelopes is known."""
        await self._launcher.predecessor_over(recipient)

    async def _launch(self, envelope: LogEnvelope, recipients: Sequence[ServedRole]) -> None:
        """Start a run as soon as all of its consumers have a free slot. Consumers that go meanwhile are left out."""
        present = await self._launcher.gather(
            envelope, recipients, lambda recipient: self._eligibility.in_turn(recipient, envelope)
        )
        self._block_behind(envelope, recipients)
        if present:
            self._launcher.begin(envelope, present, {}, self._context)

    async def bring(
        self, envelope: LogEnvelope, recipient: ServedRole, row: DeliveryRow
    ) -> "asyncio.Task[None] | None":
        """Bring an envelope with a row of its own to its role alone, as soon as that has a slot.

        The attempt is counted when it has one and before anything is handed over; to a role in trouble it is none. An
        envelope that was held is in its turn now: it costs no more than that.

        Returns:
            The run; None where there is none, as the recipient has gone, another envelope has to come first, or a bulk
            worker has something to make first.
        """
        role_id = recipient.role.id
        was_held = row.state is DeliveryState.HELD
        context = self._context if was_held else self._context.for_role(role_id)
        outputs = await self._bulk.missing(envelope, recipient, on_its_own=not was_held)
        if outputs:
            if self._eligibility.is_current(recipient, envelope):
                self._bulk.set_aside(envelope, outputs, row, self._ledger.keyed(row, envelope))
            return None
        taken = await self._launcher.gather(
            envelope, [recipient], lambda each: self._eligibility.by_row(each, envelope, row)
        )
        if not taken:
            return None
        row = self._ledger.keyed(row, envelope)
        is_probe = self._eligibility.is_troubled(role_id)
        if was_held and not is_probe:
            attempt = transitions.begun(row)
        else:
            attempt = transitions.probe(row) if is_probe else transitions.next_attempt(row)
            await self._count(row, attempt, *taken)
        again = is_probe or transitions.may_have_begun(attempt)
        return self._launcher.begin(envelope, taken, {role_id: attempt}, context, again=again)

    async def _count(self, row: DeliveryRow, attempt: DeliveryRow, instance: RecipientProxy) -> None:
        """Have it durable that an instance whose slot is taken is about to get an envelope."""
        self._ledger.move(row, attempt)
        try:
            await self._ledger.written()
        except BaseException:
            self._context.release_slot(instance)
            raise

    def _block_behind(self, envelope: LogEnvelope, recipients: Iterable[ServedRole]) -> None:
        """Have an envelope wait for an earlier one of its ordering key, where roles want that."""
        for recipient in recipients:
            if self._eligibility.is_blocked(recipient, envelope):
                row = self._ledger.before_its_turn(envelope, recipient.role.id)
                self._ledger.move(None, transitions.held(row))
