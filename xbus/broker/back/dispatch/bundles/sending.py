"""Sends what waits for a party: bundle after bundle, each to an instance of each of its consumers."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from xbus.broker.back.dispatch.bundles.party import BundleParty
from xbus.broker.back.dispatch.bundles.run import BundleRun
from xbus.broker.back.dispatch.bundles.vote import Outcome, Shares
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.run_launcher import RunLauncher
from xbus.broker.back.log import SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles
from xbus.broker.back.recipients import BundleResult, BundleStatus, RecipientFailed, RecipientProxy, ServedRole
from xbus.broker.back.run import BackRunContext
from xbus.broker.journal.log.reading import LogEnvelope


class BundleSender:
    """Sends bundles, and brings each envelope on that no bundle took.

    Args:
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        gathering: takes the consumers' slots.
        run: carries a bundle out.
        launcher: begins a run for what several consumers decide about, and can't go in a bundle any more.
        context: what such a run lives on, and where slots are given back.
    """

    def __init__(
        self,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        gathering: ConsumerGathering,
        run: BundleRun,
        launcher: RunLauncher,
        context: BackRunContext,
    ) -> None:
        self._roles = roles
        self._eligibility = eligibility
        self._gathering = gathering
        self._run = run
        self._launcher = launcher
        self._context = context
        self._is_finishing = False

    def finish(self) -> None:
        """Send no other bundle."""
        self._is_finishing = True

    async def send(self, party: BundleParty) -> None:
        """Send bundles to one instance of each consumer after another; several of these tasks may be at it."""
        try:
            while party.queue and not self._is_finishing:
                await self._key_free(party)
                taken = await self._gathering.take(
                    list(party.recipients),
                    lambda each: each in party.recipients and self._eligibility.is_served(each),
                )
                if not taken:
                    return
                await self._send_one(party, taken)
                if party.queue:
                    # Whoever else waits for the slot, as a row that is due, is woken now and takes it first.
                    await asyncio.sleep(0)
        finally:
            self._end_sending(party)

    def leave(self, party: BundleParty) -> None:
        """Leave what waits to the lanes that read on for its roles when they are served again."""
        waiting = party.queue.take_all()
        for recipient in party.recipients:
            self._run.leave(recipient, waiting)

    def _end_sending(self, party: BundleParty) -> None:
        task = asyncio.current_task()
        if task is not None:
            party.sending.discard(task)
        if not party.sending or not all(self._eligibility.is_served(each) for each in party.recipients):
            self.leave(party)

    async def _send_one(self, party: BundleParty, taken: Sequence[RecipientProxy]) -> None:
        """Send what may go now to instances whose slots are taken."""
        instances = {instance.role.id: instance for instance in taken}
        recipients = [recipient for recipient in party.recipients if recipient.role.id in instances]
        bundle = party.queue.take(
            self._key_for(recipients),
            lambda key: self._is_in_hand(recipients, key),
            party.takers,
            min(map(self._gathering.may_prepare, taken)) if len(taken) > 1 else len(party.queue),
        )
        further = self._gathering.take_further(taken, len(bundle) - 1) if len(taken) > 1 else {}
        shares = self._shares(recipients, instances, bundle)
        for recipient in recipients:
            role = self._roles[recipient.role.id]
            for small in shares.get(instances[role.id], ()) if role.keys.is_wanted else ():
                role.keys_in_hand.begin(small.position, role.keys.key(small.envelope))
        together: Sequence[SmallEnvelope] = ()
        try:
            outcome = await self._carry_out(party, shares)
            for instance in taken:
                for _ in range(1 + further.get(instance, 0)):
                    self._context.release_slot(instance)
            if not all(result is BundleStatus.COMMITTED for results in outcome.values() for result in results):
                # Before the failures are noted, which may take long: another recipient may come in the meantime.
                together = self._put_back(party, recipients, bundle, _results_at(shares, outcome))
                await self._run.note_failed(shares, outcome)
        finally:
            for recipient in recipients:
                self._roles[recipient.role.id].keys_in_hand.end([small.position for small in bundle])
        for small in together:
            await self._run_together(recipients, small)

    async def _carry_out(self, party: BundleParty, shares: Shares) -> Outcome:
        """Have a bundle carried out, and learn from it how many go together and who keeps the others waiting."""
        now = asyncio.get_running_loop().time
        began = now()
        busy = {instance: instance.busy_seconds for instance in shares}
        outcome = await self._run.carry_out(shares)
        seconds = now() - began
        results = [result for of_one in outcome.values() for result in of_one]
        if results:
            committed = max(list(of_one).count(BundleStatus.COMMITTED) for of_one in outcome.values())
            has_failed = any(isinstance(result, RecipientFailed) for result in results)
            party.queue.size.learn(committed, seconds, has_failed=has_failed)
        if len(shares) > 1:
            self._gathering.note_run({each: each.busy_seconds - before for each, before in busy.items()})
        return outcome

    def _shares(
        self, recipients: Sequence[ServedRole], instances: Mapping[int, RecipientProxy], bundle: Sequence[SmallEnvelope]
    ) -> dict[RecipientProxy, list[SmallEnvelope]]:
        """Give each consumer what of a bundle is due to it, and waits for no other of its ordering key meanwhile."""
        shares: dict[RecipientProxy, list[SmallEnvelope]] = {}
        for recipient in recipients:
            keys = self._roles[recipient.role.id].keys
            share: list[SmallEnvelope] = []
            for small in bundle:
                if not self._eligibility.is_due(recipient, small.envelope):
                    self._run.leave(recipient, [small])
                elif keys.blocks(small.envelope):
                    self._run.block(recipient, [small])
                else:
                    share.append(small)
            if share:
                shares[instances[recipient.role.id]] = share
        return shares

    def _put_back(
        self,
        party: BundleParty,
        recipients: Sequence[ServedRole],
        bundle: Sequence[SmallEnvelope],
        results: Mapping[int, Mapping[int, BundleResult]],
    ) -> list[SmallEnvelope]:
        """Have envelopes brought on that no consumer of a bundle has, or some of them.

        Args:
            results: by position and role id what became of each envelope.

        Returns:
            Those that all of several consumers get in a run.
        """
        going_on: list[SmallEnvelope] = []
        together: list[SmallEnvelope] = []
        for small in bundle:
            at = results.get(small.position, {})
            if len(at) > 1 and set(at.values()) == {BundleStatus.GOES_ALONE}:
                together.append(small)
                continue
            is_new = set(at.values()) == {BundleStatus.NOT_BEGUN}
            for recipient in recipients:
                result = at.get(recipient.role.id)
                if result is BundleStatus.GOES_ALONE:
                    self._run.set_aside(recipient, [small])
                elif result is BundleStatus.NOT_BEGUN and not (is_new and self._goes_on(party, recipient)):
                    self._leave_one(recipient, small)
            if is_new and any(self._goes_on(party, recipient) for recipient in recipients):
                going_on.append(small)
        party.queue.put_back(going_on)
        return together

    def _goes_on(self, party: BundleParty, recipient: ServedRole) -> bool:
        return recipient in party.recipients and self._eligibility.is_served(recipient)

    def _leave_one(self, recipient: ServedRole, small: SmallEnvelope) -> None:
        """Leave an envelope to the lane that reads on for its role.

        The lane of the next recipient may have passed it, as it counted as being brought: then it gets a row.
        """
        if self._roles[recipient.role.id].lane is None:
            self._run.leave(recipient, [small])
        else:
            self._run.set_aside(recipient, [small])

    async def _run_together(self, recipients: Sequence[ServedRole], small: SmallEnvelope) -> None:
        """Bring several consumers an envelope in a run; one that can't take part gets it alone."""
        for recipient in recipients:
            self._run.leave(recipient, [small])
        if self._is_finishing:
            return
        present = await self._launcher.gather(
            small.envelope, recipients, lambda each: self._eligibility.in_turn(each, small.envelope)
        )
        if present:
            self._launcher.begin(small.envelope, present, {}, self._context)
        for recipient in recipients:
            if self._eligibility.in_turn(recipient, small.envelope):
                self._run.set_aside(recipient, [small])

    # -- ordering keys ---------------------------------------------------------------------------------------------

    async def _key_free(self, party: BundleParty) -> None:
        """Wait until an envelope that waits is of no ordering key that an instance of its consumers has in hand."""
        while party.queue and party.recipients:
            keys = party.queue.keys(self._key_for(party.recipients))
            if not all(self._is_in_hand(party.recipients, key) for key in keys):
                return
            key = next(iter(keys))
            hands = (self._roles[recipient.role.id].keys_in_hand for recipient in party.recipients)
            await next(hand for hand in hands if key in hand).changed()

    def _key_for(self, recipients: Iterable[ServedRole]) -> Callable[[LogEnvelope], str | None]:
        """Give what reads the ordering key of an envelope: None for all where none of some consumers wants order."""
        keys = [self._roles[recipient.role.id].keys for recipient in recipients]
        return next((each.key for each in keys if each.is_wanted), keys[0].key)

    def _is_in_hand(self, recipients: Iterable[ServedRole], key: str | None) -> bool:
        return any(key in self._roles[recipient.role.id].keys_in_hand for recipient in recipients)


def _results_at(shares: Shares, outcome: Outcome) -> dict[int, dict[int, BundleResult]]:
    """By position and role id what became of each envelope."""
    found: dict[int, dict[int, BundleResult]] = {}
    for recipient, bundle in shares.items():
        for small, result in zip(bundle, outcome[recipient], strict=True):
            found.setdefault(small.position, {})[recipient.role.id] = result
    return found
