"""Bundles: small envelopes that wait for the same consumers travel in one call, and none waits for company."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from xbus.broker.back.dispatch.bundles.party import BundleParty
from xbus.broker.back.dispatch.bundles.run import BundleRun
from xbus.broker.back.dispatch.bundles.sending import BundleSender
from xbus.broker.back.dispatch.bundles.takers import BundleTakers
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.run_executor import finish_tasks
from xbus.broker.back.log import SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class Bundles:
    """Queues small envelopes for the consumers that decide about them, and has sent what waits together.

    Of all parties of a consumer only one has anything waiting, so that envelopes leave in the order of the log.

    Args:
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        gathering: knows who keeps the others waiting.
        takers: say whose envelopes may go in bundles.
        run: notes what waits for another one of its key.
        sender: sends what waits.
        tasks: where it is sent.
    """

    def __init__(
        self,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        gathering: ConsumerGathering,
        takers: BundleTakers,
        run: BundleRun,
        sender: BundleSender,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._roles = roles
        self._eligibility = eligibility
        self._gathering = gathering
        self._takers = takers
        self._run = run
        self._sender = sender
        self._tasks = tasks
        self._parties: dict[ServedRole, list[BundleParty]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of all items that wait here."""
        return sum(party.queue.waiting_bytes for party in self._all_parties())

    def may_take(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        """Check whether a consumer may get envelopes of the same graphs as this one in a bundle, if they are small."""
        return self._takers.may_take(envelope, recipient)

    def parties(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[list[ServedRole]]:
        """Those that get a small envelope in bundles, each with those that decide about it together."""
        return self._takers.parties(envelope, recipients)

    async def add(self, small: SmallEnvelope, recipients: Sequence[ServedRole], *, in_company: bool) -> None:
        """Have an envelope brought to the consumers that decide about it, together with what waits for them then.

        Returns as soon as there is room in the queue; who may not get it any more then is left out, and so is a
        recipient that keeps others waiting.

        Args:
            in_company: whether others wait meanwhile.
        """
        while recipients:
            party = self._party(recipients)
            for recipient in recipients:
                if len(self._parties[recipient]) > 1:
                    await self._others_emptied(recipient, party)
            if not party.queue.has_room and not await self._room(party, recipients, in_company=in_company):
                return
            for recipient in recipients:
                if self._eligibility.is_blocked(recipient, small.envelope):
                    self._run.block(recipient, [small])
            going = [each for each in recipients if self._eligibility.in_turn(each, small.envelope)]
            if len(going) == len(recipients) and party.is_for(recipients):
                self._add(party, small)
                return
            # Who left the party meanwhile, as it keeps the others waiting, gets the envelope in a lane of its own.
            recipients = [each for each in going if each in party.recipients]

    def add_at_once(self, smalls: Iterator[SmallEnvelope], recipients: Sequence[ServedRole]) -> int:
        """Add the first of some envelopes of the same graphs, as far as nothing has to be waited for.

        What is asked here for each envelope is what differs between them: all else holds until somebody waits.

        Returns:
            How many were added.
        """
        first = next(smalls, None)
        parties = [] if first is None else self._takers.parties(first.envelope, recipients)
        if first is None or sum(map(len, parties)) < len(recipients) or not all(map(self._is_in_order, recipients)):
            return 0
        found = [self._party(party) for party in parties]
        if any(len(self._parties[recipient]) > 1 for recipient in recipients):
            return 0
        added = 0
        for small in chain([first], smalls):
            may_go = all(self._eligibility.in_turn(each, small.envelope) for each in recipients)
            is_next = may_go and self._takers.is_as_others(small.envelope, recipients)
            if not is_next or not all(party.queue.has_room for party in found):
                break
            for party in found:
                self._put(party, small)
            added += 1
        for party in found:
            for _ in range(min(added, party.takers)):
                self._begin_sending(party)
        return added

    def _is_in_order(self, recipient: ServedRole) -> bool:
        """Check whether nothing is left of what a role that wants order was brought when it was served before."""
        role = self._roles[recipient.role.id]
        return not role.keys.is_wanted or not role.predecessors(recipient)

    def _add(self, party: BundleParty, small: SmallEnvelope) -> None:
        self._put(party, small)
        self._begin_sending(party)

    def _put(self, party: BundleParty, small: SmallEnvelope) -> None:
        for recipient in party.recipients:
            self._roles[recipient.role.id].in_flight.begin(small.position)
        party.queue.add(small)

    def _party(self, recipients: Sequence[ServedRole]) -> BundleParty:
        for party in self._parties.get(recipients[0], ()):
            if party.is_for(recipients):
                return party
        party = BundleParty(recipients)
        for recipient in recipients:
            self._parties.setdefault(recipient, []).append(party)
        return party

    def _begin_sending(self, party: BundleParty) -> None:
        if len(party.sending) < party.takers:
            logins = ", ".join(recipient.role.login for recipient in party.recipients)
            task = self._tasks.create_task(self._sender.send(party), name=f"bundles to {logins}")
            party.sending.add(task)
            self._sending.add(task)
            task.add_done_callback(lambda _: self._forget_if_over(party))
            task.add_done_callback(self._sending.discard)
            for recipient in party.recipients:
                self._roles[recipient.role.id].bring_by(task)

    async def _room(self, party: BundleParty, recipients: Sequence[ServedRole], *, in_company: bool) -> bool:
        """Wait until a party has room; false where its only consumer kept the others waiting for too long."""
        if in_company and len(recipients) == 1:
            return await self._gathering.others_wait(recipients[0], party.queue.room())
        # Of several the slow ones are left behind where their slots are taken, and after each bundle.
        await party.queue.room()
        return True

    async def emptied(self, recipient: ServedRole, *, in_company: bool) -> bool:
        """Wait until what was added for a consumer is on its way: what takes a run comes behind it.

        For a role that wants order wait until it is known what has become of it: a run must not overtake what failed.

        Args:
            in_company: whether others wait meanwhile.

        Returns:
            Whether it is; else the recipient kept the others waiting, and goes on at its own pace.
        """
        await self._others_emptied(recipient, alone := self._alone(recipient))
        if alone is not None and in_company and (alone.queue or alone.sending):
            return await self._gathering.others_wait(recipient, self._emptied(alone, recipient))
        if alone is not None:
            await self._emptied(alone, recipient)
        return True

    def _alone(self, recipient: ServedRole) -> BundleParty | None:
        return next((party for party in self._parties.get(recipient, ()) if len(party.recipients) == 1), None)

    async def _others_emptied(self, recipient: ServedRole, party: BundleParty | None) -> None:
        """Wait until nothing waits for a consumer in any party but one."""
        for other in list(self._parties.get(recipient, ())):
            if other is not party:
                await self._emptied(other, recipient)

    async def _emptied(self, party: BundleParty, recipient: ServedRole) -> None:
        await party.queue.emptied()
        if party.sending and self._roles[recipient.role.id].keys.is_wanted:
            await asyncio.wait(set(party.sending))

    def split(self, recipient: ServedRole) -> None:
        """Let a consumer that keeps the others waiting take what waits for all of them at its own pace."""
        for party in list(self._parties.get(recipient, ())):
            if len(party.recipients) > 1:
                waiting = party.queue.waiting()
                self._let_leave(party, recipient)
                alone = self._party([recipient])
                for small in waiting:
                    self._add(alone, small)

    def left(self, recipient: ServedRole) -> None:
        """Leave what waits for a recipient that gets nothing more in its turn, before another one of its role comes.

        Else: 1. The last bundle takes its time to be noted. 2. Another recipient comes, and its lane passes what waits
        here, as that counts as being brought. 3. The bundle is noted, and nobody brings what waited.
        """
        for party in list(self._parties.get(recipient, ())):
            self._run.leave(recipient, party.queue.waiting())
            self._let_leave(party, recipient)

    def _let_leave(self, party: BundleParty, recipient: ServedRole) -> None:
        """Let the others of a party get what waits without one of them."""
        party.leave(recipient)
        self._forget(party, recipient)
        if not party.recipients:
            party.queue.take_all()
        self._forget_if_over(party)

    def _forget_if_over(self, party: BundleParty) -> None:
        if party.is_over:
            for recipient in party.recipients:
                self._forget(party, recipient)

    def _forget(self, party: BundleParty, recipient: ServedRole) -> None:
        others = [each for each in self._parties.pop(recipient, ()) if each is not party]
        if others:
            self._parties[recipient] = others

    def _all_parties(self) -> set[BundleParty]:
        return {party for parties in self._parties.values() for party in parties}

    async def finish(self, seconds: float) -> None:
        """Send no other bundle, and wait for those that are under way; those that take longer are broken off."""
        self._sender.finish()
        for party in self._all_parties():
            self._sender.leave(party)
        await finish_tasks(self._sending, seconds)
