"""Brings small envelopes of pages to the parties that get them, in which they wait beside those of groups."""

from collections.abc import Collection, Mapping, Sequence

from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.group_calls import BundleCalls
from xbus.broker.back.dispatch.group_delivery import GroupDelivery
from xbus.broker.back.dispatch.group_outcomes import GroupOutcomes
from xbus.broker.back.dispatch.pages import Way
from xbus.broker.back.dispatch.parties import BundleParty
from xbus.broker.back.log import LogReader, PagePart, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, OpenReplies
from xbus.broker.back.recipients import ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class PageDelivery:
    """Decides which envelopes of a page go together, and waits where a party has no room for them.

    Args:
        log: knows what is corrected.
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        gathering: knows who keeps the others waiting.
        open_replies: what consumers hold open already.
        calls: say who may get envelopes together.
        outcomes: notes what waits for another one of its key.
        groups: has the parties.
    """

    def __init__(
        self,
        log: LogReader,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        gathering: ConsumerGathering,
        open_replies: OpenReplies,
        calls: BundleCalls,
        outcomes: GroupOutcomes,
        groups: GroupDelivery,
    ) -> None:
        self._log = log
        self._roles = roles
        self._eligibility = eligibility
        self._gathering = gathering
        self._open_replies = open_replies
        self._calls = calls
        self._outcomes = outcomes
        self._groups = groups

    def parties(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[list[ServedRole]]:
        """Give those that get a small envelope together with others, each with those that decide about it together.

        What was corrected or begun before goes alone, and what waits for one of its key gets a row.
        """
        if self._open_replies.open or self._log.is_corrected(envelope):
            return []
        found = self.together(envelope, recipients)
        if not self._open_replies.maybe_open and not any(self._roles[each.role.id].keys.held for each in recipients):
            return found
        return [
            party
            for party in found
            if not self._open_replies.may_be_open(envelope.envelope_id, party)
            and not any(self._roles[each.role.id].keys.blocks(envelope) for each in party)
        ]

    def together(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[list[ServedRole]]:
        """Give the same for all small envelopes of the graphs of this one."""
        return self._calls.parties(envelope.graph_ids, [event.type_name for event in envelope.events], recipients)

    async def add(self, small: SmallEnvelope, recipients: Sequence[ServedRole], *, in_company: bool) -> None:
        """Have an envelope brought to the consumers that decide about it, together with what waits for them then.

        Returns as soon as there is room in the queue; who may not get it any more then is left out, and so is a
        recipient that keeps others waiting.

        Args:
            in_company: whether others wait meanwhile.
        """
        while recipients:
            party = self._groups.party(recipients)
            for recipient in recipients:
                # One of them may have left while another was waited for.
                if len(self._groups.parties_of.get(recipient, ())) > 1:
                    await self._others_emptied(recipient, party)
            if not party.has_room and not await self._room(party, small, in_company=in_company):
                return
            for recipient in recipients:
                if self._eligibility.is_blocked(recipient, small.envelope):
                    self._outcomes.block(recipient, [small])
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
        for party in dict.fromkeys(party for found in parties.values() for party in found):
            of_party = [way for way, found in parties.items() if party in found]
            share = [small for small, way in zip(smalls[:number], ways, strict=False) if way in of_party]
            fitting = party.room_for(share)
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
        """Give the parties that get envelopes of a way; None where a run or a wait is needed.

        Args:
            taken: the parties that get envelopes before these; added to.
        """
        wanted = self.parties(envelope, recipients)
        are_served = all(self._eligibility.is_served(each) and self._is_in_order(each) for each in recipients)
        if sum(map(len, wanted)) < len(recipients) or not are_served:
            return None
        found = [self._groups.party(party) for party in wanted]
        for party in found:
            for recipient in party.recipients:
                others = [each for each in self._groups.parties_of[recipient] if each is not party]
                if taken.setdefault(recipient, party) is not party or any(map(self._must_end_first, others)):
                    return None
        return found

    def _must_end_first(self, party: BundleParty) -> bool:
        """Check whether envelopes of a party must be on their way before its consumers get any in another one."""
        wants_order = any(self._roles[recipient.role.id].keys.is_wanted for recipient in party.recipients)
        return bool(party.has_waiting or (party.is_under_way and wants_order))

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
        if not smalls:
            return
        for graph_ids in {small.envelope.graph_ids for small in smalls} if not party.by_workers else ():
            party.by_workers |= self._calls.pass_workers(graph_ids, party.recipients[0])
        self._groups.put(party, PagePart.of(smalls))

    async def _room(self, party: BundleParty, small: SmallEnvelope, *, in_company: bool) -> bool:
        """Wait until a party has room for an envelope; false where its only consumer kept the others waiting for too
        long."""
        if in_company and len(party.recipients) == 1:
            (recipient,) = party.recipients
            shares_nothing = not self._calls.pass_workers(small.envelope.graph_ids, recipient)
            return await self._gathering.others_wait(recipient, party.room(), shares_nothing=shares_nothing)
        # Of several the slow ones are left behind where their slots are taken, and after each bundle.
        await party.room()
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
        if alone is None or alone.is_idle:
            return True
        if in_company:
            return await self._gathering.others_wait(recipient, self._emptied(alone, recipient))
        await self._emptied(alone, recipient)
        return True

    def _alone(self, recipient: ServedRole) -> BundleParty | None:
        parties = self._groups.parties_of.get(recipient, ())
        return next((party for party in parties if len(party.recipients) == 1 and not party.is_closing), None)

    async def _others_emptied(self, recipient: ServedRole, party: BundleParty | None) -> None:
        """Wait until nothing waits for a consumer in any party but one."""
        for other in list(self._groups.parties_of.get(recipient, ())):
            if other is not party:
                await self._emptied(other, recipient)

    async def _emptied(self, party: BundleParty, recipient: ServedRole) -> None:
        if self._roles[recipient.role.id].keys.is_wanted:
            await party.settled()
        else:
            await party.emptied()
