"""Bundles: small envelopes that wait for the same consumers travel in one call, and none waits for company."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any

from xbus.broker.back.dispatch.bundle_calls import BundleWorkers, Outcome
from xbus.broker.back.dispatch.bundle_sending import BundleRun, BundleSender
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.pages import Way
from xbus.broker.back.dispatch.parties import BundleParty, GroupCall
from xbus.broker.back.dispatch.run_executor import finish_tasks
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, OpenReplies
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class Bundles:
    """Queues small envelopes for the consumers that decide about them, and has sent what waits together.

    Of all parties of a consumer only one has anything waiting, so that envelopes leave in the order of the log.

    Args:
        log: knows what is corrected.
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        gathering: knows who keeps the others waiting.
        open_replies: what consumers hold open already.
        workers: say which envelopes they can transform in a bundle.
        run: notes what waits for another one of its key.
        sender: sends what waits.
        tasks: where it is sent.
    """

    def __init__(
        self,
        log: LogReader,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        gathering: ConsumerGathering,
        open_replies: OpenReplies,
        workers: BundleWorkers,
        run: BundleRun,
        sender: BundleSender,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._log = log
        self._roles = roles
        self._eligibility = eligibility
        self._gathering = gathering
        self._open_replies = open_replies
        self._workers = workers
        self._run = run
        self._sender = sender
        self._tasks = tasks
        self.parties_of: dict[ServedRole, list[BundleParty]] = {}
        """The parties of each consumer: one has what waits for it, and others are not over yet."""
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of all items that wait here."""
        return sum(party.waiting_bytes for party in self._all_parties())

    # -- who gets bundles --------------------------------------------------------------------------------------------

    def together(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[list[ServedRole]]:
        """Give those that get small envelopes of the same graphs as this one in bundles, each with those that decide
        about it together.

        Those that have a vote decide together, or in a run if one of them can't. Nobody may wait for a reply. Several
        consumers behind workers share a run, so that its workers work once for all of them.
        """
        types = [event.type_name for event in envelope.events]
        ways = {each: self._workers.way(envelope.graph_ids, each.role.service) for each in recipients}
        takes = {
            each
            for each, way in ways.items()
            if way is not None and each.abilities.bundles and each.abilities.immediate_reply.isdisjoint(types)
        }
        behind_workers = [each for each, way in ways.items() if way != ()]
        if len(recipients) > 1 and len(behind_workers) > 1:
            takes.difference_update(behind_workers)
        voters = [each for each in recipients if not each.role.own]
        parties = [[each] for each in recipients if each.role.own]
        if len(voters) == 1 or not any(not each.abilities.prepares or ways[each] != () for each in voters):
            parties.append(voters)
        return [party for party in parties if party and takes.issuperset(party)]

    def parties(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[list[ServedRole]]:
        """The same for one small envelope: what was corrected or begun before goes alone, and what waits for one of its
        key gets a row."""
        if self._open_replies.open or self._log.is_corrected(envelope):
            return []
        if not self._open_replies.maybe_open and not any(self._roles[each.role.id].keys.held for each in recipients):
            return self.together(envelope, recipients)
        return [
            party
            for party in self.together(envelope, recipients)
            if not self._open_replies.may_be_open(envelope.envelope_id, party)
            and not any(self._roles[each.role.id].keys.blocks(envelope) for each in party)
        ]

    # -- what waits --------------------------------------------------------------------------------------------------

    async def add(self, small: SmallEnvelope, recipients: Sequence[ServedRole], *, in_company: bool) -> None:
        """Have an envelope brought to the consumers that decide about it, together with what waits for them then.

        Returns as soon as there is room in the queue; who may not get it any more then is left out, and so is a
        recipient that keeps others waiting.

        Args:
            in_company: whether others wait meanwhile.
        """
        while recipients:
            party = self.party(recipients)
            for recipient in recipients:
                if len(self.parties_of[recipient]) > 1:
                    await self._others_emptied(recipient, party)
            if not party.queue.has_room and not await self._room(party, small, in_company=in_company):
                return
            for recipient in recipients:
                if self._eligibility.is_blocked(recipient, small.envelope):
                    self._run.block(recipient, [small])
            going = [each for each in recipients if self._eligibility.in_turn(each, small.envelope)]
            if len(going) == len(recipients) and party.is_for(recipients):
                self._put(party, [small])
                return
            # Who left the party meanwhile, as it keeps the others waiting, gets the envelope in a lane of its own.
            recipients = [each for each in going if each in party.recipients]

    def add_at_once(
        self, smalls: Sequence[SmallEnvelope], ways: Sequence[Way], recipients: Mapping[Way, Sequence[ServedRole]]
    ) -> int:
        """Add the first of some envelopes, as far as nothing has to be waited for.

        What is asked here for each envelope is what differs between those of a way: all else holds until somebody
        waits.

        Args:
            ways: of each of them.
            recipients: those that get the envelopes of a way.

        Returns:
            How many were added.
        """
        number = len(smalls)
        parties: dict[Way, list[BundleParty]] = {}
        taken: dict[ServedRole, BundleParty] = {}
        for way in sorted(recipients, key=ways.index):
            first = ways.index(way)
            found = self._parties_at_once(smalls[first].envelope, recipients[way], taken)
            if found is None:
                number = first
                break
            parties[way] = found
        number = self._count_usual(smalls[:number], ways, recipients)
        shares: dict[BundleParty, list[SmallEnvelope]] = {}
        for party in {party for found in parties.values() for party in found}:
            of_party = [way for way, found in parties.items() if party in found]
            share = [small for small, way in zip(smalls[:number], ways, strict=False) if way in of_party]
            fitting = party.queue.room_for(share)
            if fitting < len(share):
                number = smalls.index(share[fitting])
            shares[party] = share
        for party, share in shares.items():
            beyond = number < len(smalls) and smalls[number].envelope.position
            self._put(party, [small for small in share if not beyond or small.envelope.position < beyond])
        return number

    def _parties_at_once(
        self, envelope: LogEnvelope, recipients: Sequence[ServedRole], taken: dict[ServedRole, BundleParty]
    ) -> list[BundleParty] | None:
        """Give the parties that get envelopes of a way; None where a run is needed, or something to be waited for.

        Args:
            taken: the parties that get envelopes before these; added to.
        """
        wanted = self.parties(envelope, recipients)
        are_served = all(self._eligibility.is_served(each) and self._is_in_order(each) for each in recipients)
        if sum(map(len, wanted)) < len(recipients) or not are_served:
            return None
        found = [self.party(party) for party in wanted]
        for party in found:
            for recipient in party.recipients:
                others = [each for each in self.parties_of[recipient] if each is not party]
                if taken.setdefault(recipient, party) is not party or any(map(self._must_end_first, others)):
                    return None
        return found

    def _must_end_first(self, party: BundleParty) -> bool:
        """Check whether envelopes of a party must be on their way before its consumers get any in another one."""
        wants_order = any(self._roles[recipient.role.id].keys.is_wanted for recipient in party.recipients)
        return bool(party.queue or (party.is_under_way and wants_order))

    def _count_usual(
        self, smalls: Sequence[SmallEnvelope], ways: Sequence[Way], recipients: Mapping[Way, Sequence[ServedRole]]
    ) -> int:
        """Count the first of some envelopes that all of their recipients may get now, as they were sent."""
        everyone = {recipient.role.id for whom in recipients.values() for recipient in whom}
        roles = [self._roles[role_id] for role_id in everyone]
        positions = [small.envelope.position for small in smalls]
        may_differ = self._log.has_corrections or self._open_replies.maybe_open
        if not may_differ and not any(role.keys.held or role.in_flight.has_any(positions) for role in roles):
            return len(smalls)
        for place, (small, way) in enumerate(zip(smalls, ways, strict=False)):
            envelope, whom = small.envelope, recipients[way]
            is_open = self._open_replies.may_be_open(envelope.envelope_id, whom)
            in_turn = all(self._eligibility.in_turn(recipient, envelope) for recipient in whom)
            if is_open or not in_turn or self._log.is_corrected(envelope):
                return place
        return len(smalls)

    def _is_in_order(self, recipient: ServedRole) -> bool:
        """Check whether nothing is left of what a role that wants order was brought when it was served before."""
        role = self._roles[recipient.role.id]
        return not role.keys.is_wanted or not role.predecessors(recipient)

    def _put(self, party: BundleParty, smalls: Sequence[SmallEnvelope]) -> None:
        positions = [small.envelope.position for small in smalls]
        for recipient in party.recipients:
            self._roles[recipient.role.id].in_flight.begin_all(positions)
        party.queue.add(smalls)
        for _ in range(min(len(smalls), party.takers)):
            self.begin_sending(party)

    def party(self, recipients: Sequence[ServedRole]) -> BundleParty:
        """Give the party of some consumers, to which the next envelope for them may be added."""
        for party in self.parties_of.get(recipients[0], ()):
            if party.is_for(recipients):
                return party
        party = BundleParty(recipients)
        for recipient in recipients:
            self.parties_of.setdefault(recipient, []).append(party)
        return party

    def has_only(self, recipient: ServedRole, party: BundleParty) -> bool:
        """Check whether nothing waits for a consumer in any party but one."""
        parties = self.parties_of.get(recipient, [])
        if len(parties) == 1:
            return parties[0] is party
        return party in parties and all(each is party or each.is_idle for each in parties)

    def begin_sending(self, party: BundleParty) -> None:
        """Have what waits for a party sent by a task, beside others as far as it may have more of them."""
        if len(party.sending) < party.takers:
            self._begin(party, self._sender.send(party))

    def send_queued(self, party: BundleParty) -> None:
        """Have all that waits for a party sent by a task, also what waits as columns."""
        if party.queue:
            self.begin_sending(party)

    def begin_noting(self, call: GroupCall, outcome: Outcome) -> None:
        """Have noted what became of envelopes that were out, give the slots back, and send on what waits."""
        self._begin(call.party, self._sender.send_after(call, outcome, is_vote=False))

    def begin_voting(self, call: GroupCall, votes: Outcome) -> None:
        """Have the vote on envelopes carried on that not each consumer has prepared; then as ``begin_noting``."""
        self._begin(call.party, self._sender.send_after(call, votes, is_vote=True))

    def _begin(self, party: BundleParty, work: Coroutine[Any, Any, None]) -> None:
        logins = ", ".join([recipient.role.login for recipient in party.recipients])
        try:
            task = self._tasks.create_task(work, name=f"bundles to {logins}")
        except RuntimeError:
            # The broker is ending: the next one reads again what is not settled.
            work.close()
            return
        party.sending.add(task)
        self._sending.add(task)
        task.add_done_callback(party.end)
        task.add_done_callback(lambda _: self.forget_if_over(party))
        task.add_done_callback(self._sending.discard)
        for recipient in party.recipients:
            self._roles[recipient.role.id].bring_by(task)

    async def _room(self, party: BundleParty, small: SmallEnvelope, *, in_company: bool) -> bool:
        """Wait until a party has room for an envelope; false where its only consumer kept the others waiting for too
        long."""
        if in_company and len(party.recipients) == 1:
            (recipient,) = party.recipients
            has_no_worker = self._workers.way(small.envelope.graph_ids, recipient.role.service) == ()
            return await self._gathering.others_wait(recipient, party.queue.room(), shares_nothing=has_no_worker)
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
        if alone is not None and in_company and (alone.queue or alone.is_under_way):
            return await self._gathering.others_wait(recipient, self._emptied(alone, recipient))
        if alone is not None:
            await self._emptied(alone, recipient)
        return True

    def _alone(self, recipient: ServedRole) -> BundleParty | None:
        return next((party for party in self.parties_of.get(recipient, ()) if len(party.recipients) == 1), None)

    async def _others_emptied(self, recipient: ServedRole, party: BundleParty | None) -> None:
        """Wait until nothing waits for a consumer in any party but one."""
        for other in list(self.parties_of.get(recipient, ())):
            if other is not party:
                await self._emptied(other, recipient)

    async def _emptied(self, party: BundleParty, recipient: ServedRole) -> None:
        if self._roles[recipient.role.id].keys.is_wanted:
            await party.settled()
        else:
            await party.queue.emptied()

    def split(self, recipient: ServedRole) -> None:
        """Let a consumer that keeps the others waiting take what waits for all of them at its own pace."""
        for party in list(self.parties_of.get(recipient, ())):
            if len(party.recipients) > 1:
                waiting = party.queue.waiting()
                self._let_leave(party, recipient)
                alone = self.party([recipient])
                self._put(alone, waiting)

    def left(self, recipient: ServedRole) -> None:
        """Leave what waits for a recipient that gets nothing more in its turn, before another one of its role comes.

        Else: 1. The last bundle takes its time to be noted. 2. Another recipient comes, and its lane passes what waits
        here, as that counts as being brought. 3. The bundle is noted, and nobody brings what waited.
        """
        for party in list(self.parties_of.get(recipient, ())):
            self._run.leave(recipient, party.queue.waiting())
            self._let_leave(party, recipient)

    def _let_leave(self, party: BundleParty, recipient: ServedRole) -> None:
        """Let the others of a party get what waits without one of them."""
        party.leave(recipient)
        self._forget(party, recipient)
        if not party.recipients:
            party.queue.take_all()
        self.forget_if_over(party)

    def forget_if_over(self, party: BundleParty) -> None:
        """Forget a party that one of its consumers has left, as soon as nothing of it waits or is under way."""
        if party.is_over:
            for recipient in party.recipients:
                self._forget(party, recipient)

    def _forget(self, party: BundleParty, recipient: ServedRole) -> None:
        others = [each for each in self.parties_of.pop(recipient, ()) if each is not party]
        if others:
            self.parties_of[recipient] = others

    def _all_parties(self) -> set[BundleParty]:
        return {party for parties in self.parties_of.values() for party in parties}

    async def finish(self, seconds: float) -> None:
        """Send no other bundle, and wait for those that are under way; those that take longer are broken off."""
        self._sender.finish()
        for party in self._all_parties():
            self._sender.leave(party)
        await finish_tasks(self._sending, seconds)
