"""The short way of most envelopes: the consumers that have all before them get the columns of a sealed group in one
call, or in two where they decide together.

An envelope has no object here, and no task or future of its own. Unusual envelopes take the lanes and the queues of
bundles: ordering keys that are blocked, workers, corrections, traces, and whatever is not committed.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from xbus import tracing
from xbus.broker.back.dispatch.bundle_calls import failed_together
from xbus.broker.back.dispatch.bundles import Bundles
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.parties import MOST_ENVELOPES, BundleParty, GroupCall, positions_of
from xbus.broker.back.log import SMALL_BYTES, BundleEntry, GroupPart, LogReader, parts_on_wire
from xbus.broker.back.progress import ConsumerRole, ConsumerRoles, DeliveryLedger, Lane, OpenReplies, RunResults
from xbus.broker.back.recipients import RecipientProxy, ServedRole, Slots, fault_among_many
from xbus.broker.back.run import BackRunContext
from xbus.broker.journal.writes import Sealed, SealedGroup
from xbus.errors import CallError
from xbus.graph import Graph
from xbus.rpc.codec import Value
from xbus.states import ConsumerState

log = logging.getLogger(__name__)


class _Way(NamedTuple):
    """The way of the envelopes of a lane that take a graph.

    Args:
        graph: as it was then.
        parties: the consumers that it leads to, each with those that decide together with it; None where workers are
            before them.
    """

    graph: Graph
    parties: Sequence[BundleParty] | None


class GroupDelivery:
    """Hands sealed groups over to the roles at the head of the log.

    Args:
        log: knows graphs, emitters and corrections.
        ledger: where hand-overs are reserved.
        roles: how they are served, and what they are owed.
        open_replies: what consumers hold open already.
        slots: who is free.
        gathering: knows who keeps the others waiting.
        bundles: brings what can't go on here.
        results: takes note of what was committed.
        context: where slots are given back.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        roles: ConsumerRoles,
        open_replies: OpenReplies,
        slots: Slots[RecipientProxy],
        gathering: ConsumerGathering,
        bundles: Bundles,
        results: RunResults,
        context: BackRunContext,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._roles = roles
        self._open_replies = open_replies
        self._slots = slots
        self._gathering = gathering
        self._bundles = bundles
        self._results = results
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._ways: dict[tuple[Lane, int], _Way] = {}
        self._out: set[GroupCall] = set()
        self._all_back: asyncio.Event | None = None
        self._is_finishing = False
        self.envelopes = 0
        """The number of envelopes that this way has committed since this process began."""

    def take(self, lane: Lane, sealed: Sequence[Sealed]) -> None:
        """Hand over envelopes that were sealed just now, as far as they are usual; the lane passes these.

        Args:
            lane: one that has handed out all before.
        """
        # Any envelope may be open at a recipient, or too much is noted and not written.
        if self._is_finishing or self._open_replies.open or self._open_replies.maybe_open or not self._ledger.has_room:
            return
        going: dict[BundleParty, None] = {}
        for each in sealed:
            shares = self._shares(lane, each) if isinstance(each, SealedGroup) else None
            if each.first != lane.position + 1 or shares is None or not self._may_take(shares):
                break
            lane.position = each.last
            for party, part in shares.items():
                party.parts.append(part)
                party.go_on = partial(self._go_on, party)
                going[party] = None
                for recipient in party.recipients:
                    role = self._roles[recipient.role.id]
                    role.in_flight.positions.update(part.positions)
                    self._ledger.owe_all(role, part.positions)
        for party in going:
            self._go_on(party, is_checked=True)

    def forget_ways(self, _: object = None) -> None:
        """Find out anew which consumers envelopes lead to: some have come or gone, or are configured otherwise."""
        self._ways.clear()

    def _shares(self, lane: Lane, sealed: SealedGroup) -> dict[BundleParty, GroupPart] | None:
        """Give the consumers of a lane their parts of a group.

        Returns:
            None where an envelope takes another way, is large or traced, or its emitter is not known here.
        """
        group, types = sealed.group, sealed.group.types
        if group.size > SMALL_BYTES and max(map(group.size_at, range(len(group.items)))) > SMALL_BYTES:
            return None
        for emitter_id in set(group.emitter_ids):
            if self._log.known_logins.get(emitter_id) is None:
                return None
        for head in group.heads:
            if head.headers is not None and tracing.IN_BYTES in head.headers:
                return None
        is_single = types.count(types[0]) == len(types)
        graph_ids = {types[0].graph_id} if is_single else {each.graph_id for each in set(types)}
        leading: dict[BundleParty, set[int]] = {}
        for graph_id in graph_ids:
            graph, way = self._log.known_graphs.get(graph_id), self._ways.get((lane, graph_id))
            if graph is None:
                return None
            if way is None or way.graph is not graph:
                way = self._ways[lane, graph_id] = self._find_way(lane, graph)
            if way.parties is None:
                return None
            for party in way.parties:
                leading.setdefault(party, set()).add(graph_id)
        whole = GroupPart(sealed, range(len(types)), range(sealed.first, sealed.last + 1), group.size)
        # Parties of the same graphs share their part.
        parts = {frozenset(graph_ids): whole}
        shares: dict[BundleParty, GroupPart] = {}
        for party, of_party in leading.items():
            if (graphs := frozenset(of_party)) not in parts:
                parts[graphs] = GroupPart.of_graphs(sealed, graphs)
            shares[party] = parts[graphs]
        return shares

    def _find_way(self, lane: Lane, graph: Graph) -> _Way:
        consumers = lane.of_services(graph.consumer_services)
        if any(graph.workers_before(each.role.service) != () for each in consumers):
            return _Way(graph, None)
        voters = [each for each in consumers if not each.role.own]
        parties = [[each] for each in consumers if each.role.own]
        return _Way(graph, [self._bundles.party(each) for each in (*parties, voters) if each])

    def _may_take(self, shares: dict[BundleParty, GroupPart]) -> bool:
        """Check whether all consumers get their parts as they are, in their turn and by one call.

        A party that has no room is taken away where its consumer decides alone: it is behind, and goes on by itself.
        """
        full: list[BundleParty] = []
        recipients: list[ServedRole] = []
        for party, part in shares.items():
            if party.is_closing or party.objects.envelopes:
                self._ways.clear()
                return False
            recipients += party.recipients
            for recipient in party.recipients:
                if not self._may_get(recipient, party, part):
                    return False
            if party.parts and not party.has_room_for(part):
                full.append(party)
        # Of two parties a role would take the envelopes of the second for passed when it is owed those of the first,
        # and both would have envelopes of one ordering key.
        are_apart = len(shares) < 2 or len(set(recipients)) == len(recipients)
        if not full or not are_apart:
            return are_apart
        if len(full) == len(shares) or any(len(party.recipients) > 1 for party in full):
            return False
        for party in full:
            del shares[party]
            self._gathering.leave_behind(party.recipients[0])
        return True

    def _may_get(self, recipient: ServedRole, party: BundleParty, part: GroupPart) -> bool:
        role, abilities = self._roles[recipient.role.id], recipient.abilities
        cursor = role.cursor
        return (
            role.served is recipient
            and cursor is not None
            and (cursor.until_position is None or part.positions[-1] < cursor.until_position)
            and abilities.bundles
            and (len(party.recipients) == 1 or abilities.prepares > 0)
            and (not abilities.immediate_reply or part.type_names.isdisjoint(abilities.immediate_reply))
            and (not role.keys.is_wanted or not role.predecessors(recipient))
            and (self._bundles.parties_of.get(recipient) == [party] or self._bundles.has_only(recipient, party))
            and self._is_owed(role, part.positions)
        )

    def _is_owed(self, role: ConsumerRole, positions: Sequence[int]) -> bool:
        """Check whether a role gets all envelopes at some positions in its turn, as they were sent."""
        cursor, first = role.cursor, positions[0]
        if role.state is not ConsumerState.READING or role.keys.held or cursor is None or cursor.from_position > first:
            return False
        # What comes behind an envelope of a key in hand is settled before it.
        is_ahead = cursor.position + cursor.above.bit_length() < first
        return not self._log.has_corrections and (is_ahead or not cursor.settled_of(positions))

    def _go_on(self, party: BundleParty, *, is_checked: bool = False) -> None:
        """Hand over what waits for a party, as far as its instances are free.

        Args:
            is_checked: whether its consumers are owed all of it, as was found out just now.
        """
        while party.parts and not party.sending and (not party.out or len(party.out) < party.takers):
            positions = party.parts[0].positions if len(party.parts) == 1 else positions_of(party.parts)
            for recipient in () if is_checked else party.recipients:
                if not self._is_owed(self._roles[recipient.role.id], positions):
                    self._bundles.send_queued(party)
                    return
            # One commit makes it durable for all of them: nobody waits before the last one has asked.
            are_reserved = True
            for recipient in party.recipients:
                role = self._roles[recipient.role.id]
                if positions[-1] > role.reserved_to:
                    go_on = partial(self._go_on, party)
                    are_reserved = self._ledger.is_reserved(role, positions[-1], go_on) and are_reserved
            if not are_reserved:
                return
            if not self._hand_over(party):
                # Somebody else has a slot or a key, and gives it to whoever stands in line.
                if not party.out:
                    self._bundles.send_queued(party)
                return
        if party.objects.envelopes:
            self._bundles.send_queued(party)

    def _hand_over(self, party: BundleParty) -> bool:
        """Hand over what may go now; false where that is nothing."""
        instances: dict[RecipientProxy, ServedRole] = {}
        in_hand: set[str] | None = None
        may_go = True
        for recipient in party.recipients:
            instance = self._slots.take_at_once(recipient) if may_go else None
            # A program that came since they were added may do less than those of before.
            may_go = False
            if instance is not None:
                abilities = instance.abilities
                may_go = abilities.bundles and (len(party.recipients) == 1 or abilities.prepares > 0)
                instances[instance] = recipient
            role = self._roles[recipient.role.id]
            if role.keys.is_wanted:
                in_hand = {*(in_hand or ()), *role.keys_in_hand.all()}
        most = MOST_ENVELOPES
        if may_go and len(instances) > 1 and (len(party.parts) > 1 or len(party.parts[0].places) > 1):
            most = min(map(self._gathering.may_prepare, instances))
        parts = party.take_parts(in_hand, most) if may_go else ()
        if not parts:
            for each in instances:
                self._slots.free(each)
            return False
        slots = dict.fromkeys(instances, 1)
        if len(instances) > 1 and (len(parts) > 1 or len(parts[0].places) > 1):
            further = sum([len(part.places) for part in parts]) - 1
            for each, number in self._gathering.take_further(list(instances), further).items():
                slots[each] += number
        for recipient in party.recipients if in_hand is not None else ():
            role = self._roles[recipient.role.id]
            for part in parts if role.keys.is_wanted else ():
                role.keys_in_hand.begin_all(part.positions, part.ordering_keys)
        call = GroupCall(party, instances, slots, parts, self._loop.time())
        party.out.add(call)
        self._out.add(call)
        self._call(call)
        return True

    def _call(self, call: GroupCall) -> None:
        is_vote = len(call.instances) > 1
        written: dict[tuple[bool, bool], Sequence[BundleEntry]] = {}
        try:
            for instance in call.instances:
                form = wants_notes, wants_headers = instance.abilities.notes, instance.abilities.headers
                if form not in written:
                    logins = self._log.known_logins if wants_notes else None
                    written[form] = parts_on_wire(call.parts, logins, wants_headers=wants_headers)
                taker = partial(self._voted if is_vote else self._answered, call, instance)
                instance.hand_over(call.ids, written[form], taker, stays_open=is_vote)
        except Exception as error:
            log.exception("a bundle died", extra={"action": "bundle_died", "roles": call.logins})
            self._end(call)
            bundle, faults = call.bundle(), [fault_among_many(error)] * len(call.ids)
            for instance in call.instances:
                instance.stop_all(bundle)
            self._bundles.begin_noting(call, dict.fromkeys(call.instances, faults))

    def _voted(self, call: GroupCall, instance: RecipientProxy, answer: Value, error: CallError | None) -> None:
        """Take an answer of a consumer that decides with others; have all committed when each has prepared all."""
        call.answers[instance] = (answer, error)
        if call.is_over or len(call.answers) < len(call.instances):
            return
        answers, call.answers = call.answers, {}
        if False not in [each.went_well(call.ids, *said, stay_open=True) for each, said in answers.items()]:
            for each in call.instances:
                each.commit(call.ids, partial(self._answered, call, each))
            return
        self._end(call)
        bundle = call.bundle()
        self._bundles.begin_voting(call, {each: each.votes_of(bundle, *said) for each, said in answers.items()})

    def _answered(self, call: GroupCall, instance: RecipientProxy, answer: Value, error: CallError | None) -> None:
        """Take the last answer of a consumer; have its outcome noted when it is the last of all."""
        call.answers[instance] = (answer, error)
        if call.is_over or len(call.answers) < len(call.instances):
            return
        self._end(call)
        for each, said in call.answers.items():
            if not each.went_well(call.ids, *said, stay_open=False):
                self._note(call)
                return
        party = call.party
        self.envelopes += len(call.ids)
        is_awaited = False
        for each, slots in call.slots.items():
            role, login = self._roles[each.role.id], each.role.login
            self._results.settled_group(role, login, call.positions, call.ids, call.items)
            if self._gathering.awaited:
                self._gathering.note_idle(role)
            if each.owes:
                self._context.release_slot(each, slots)
            elif self._slots.free(each, slots):
                is_awaited = True
        party.objects.size.learn(len(call.ids), self._loop.time() - call.began, has_failed=False)
        if party.is_closing:
            self._bundles.forget_if_over(party)
        if len(call.instances) > 1:
            self._gathering.note_run(call.busy_seconds())
        if is_awaited:
            # Whoever else waits for a slot, as a row that is due, is woken now and takes it first.
            self._loop.call_soon(self._go_on, party)
        elif party.parts or party.objects.envelopes:
            self._go_on(party)

    def _note(self, call: GroupCall) -> None:
        """Have noted what became of each envelope, where not all are committed."""
        bundle = call.bundle()
        if len(call.instances) == 1:
            outcome = {each: each.results_of(bundle, *said) for each, said in call.answers.items()}
        else:
            read = {each: each.results_of_commit(bundle, *said) for each, said in call.answers.items()}
            outcome = {each: failed_together(results) for each, results in read.items()}
        self._bundles.begin_noting(call, outcome)

    def _end(self, call: GroupCall) -> None:
        call.is_over = True
        call.party.out.discard(call)
        if call.party.change is not None:
            call.party.note_change()
        self._out.discard(call)
        if not self._out and self._all_back is not None:
            self._all_back.set()

    async def finish(self, seconds: float) -> None:
        """Hand nothing more over, and wait for what is out; what takes longer is broken off."""
        self._is_finishing = True
        if self._out:
            self._all_back = asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await self._all_back.wait()
            except TimeoutError:
                for call in list(self._out):
                    self._end(call)
                    for instance in call.instances:
                        instance.stop_all(call.bundle())
