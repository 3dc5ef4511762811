"""The short way of most envelopes: the consumers that have all before them get the columns of a sealed group in one
call, or in two where they decide together.

An envelope has no object here, and no task or future of its own. What is unusual takes the lanes and the queues of
bundles: ordering keys that are blocked, workers, corrections, traces, and whatever is not committed.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from xbus import tracing
from xbus.broker.back.dispatch.bundle_calls import failed_together
from xbus.broker.back.dispatch.bundles import Bundles
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.parties import BundleParty, GroupCall, positions_of
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
    """The way of the envelopes that take a graph.

    Args:
        graph: as it was then.
        consumers: those that it leads to in a lane, and whether each decides by itself alone.
        parties: the same, each with those that decide together; None where workers are before them.
    """

    graph: Graph
    consumers: Sequence[tuple[ServedRole, bool]]
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
        self._ways: dict[int, _Way] = {}
        self._out: set[GroupCall] = set()
        self._all_back: asyncio.Event | None = None
        self._is_finishing = False
        self.envelopes = 0
        """How often an envelope was committed by this way since this process began."""

    def take(self, lane: Lane, sealed: Sequence[Sealed]) -> None:
        """Hand over envelopes that were sealed just now, as far as they are usual; the lane passes these.

        Args:
            lane: one that has handed out all before.
        """
        if self._is_finishing or self._is_unusual_now():
            return
        position = lane.position
        going: dict[BundleParty, list[GroupPart]] = {}
        for each in sealed:
            if each.first != position + 1 or not isinstance(each, SealedGroup) or not self._add(lane, each, going):
                break
            position = each.last
        may_take = self._are_apart(going) and False not in [self._may_take(*each) for each in going.items()]
        if not may_take or not self._have_room(going):
            self._ways.clear()
            return
        lane.position = position
        for party, parts in going.items():
            positions = positions_of(parts)
            for recipient in party.recipients:
                role = self._roles[recipient.role.id]
                role.in_flight.begin_all(positions)
                self._ledger.owe_all(role, positions)
            party.parts += parts
            party.go_on = partial(self._go_on, party)
        for party in going:
            self._go_on(party)

    @staticmethod
    def _are_apart(parties: Collection[BundleParty]) -> bool:
        """Check whether each consumer gets envelopes in one party alone.

        Else its role would take those of the second party for passed when it is owed those of the first one, and two
        parties would have envelopes of one ordering key.
        """
        if len(parties) < 2:
            return True
        recipients = [recipient for party in parties for recipient in party.recipients]
        return len(recipients) == len(set(recipients))

    def _have_room(self, going: dict[BundleParty, list[GroupPart]]) -> bool:
        """Check whether parts may be added for all; a consumer that decides alone and is behind goes on by itself."""
        full = [party for party, parts in going.items() if not party.has_room_for(parts)]
        if len(full) == len(going) or any(len(party.recipients) > 1 for party in full):
            return not full
        for party in full:
            del going[party]
            self._gathering.leave_behind(party.recipients[0])
        return True

    def _is_unusual_now(self) -> bool:
        """Check whether any envelope may be corrected or open at a recipient, or too much is noted and not written."""
        replies = self._open_replies
        return self._log.has_corrections or bool(replies) or replies.may_any_be_open or not self._ledger.has_room

    def _add(self, lane: Lane, sealed: SealedGroup, going: dict[BundleParty, list[GroupPart]]) -> bool:
        """Add to the consumers of a lane their parts of a group; false where any of it is unusual."""
        if self._is_unusual(sealed):
            return False
        found: list[tuple[BundleParty, GroupPart]] = []
        graph_ids = {each.graph_id for each in set(sealed.group.types)}
        for graph_id in graph_ids:
            parties = self._parties(lane, graph_id)
            if parties is None:
                return False
            if parties:
                part = GroupPart.of_graph(sealed, None if len(graph_ids) == 1 else graph_id)
                found += [(party, part) for party in parties]
        for party, part in found if len(graph_ids) == 1 else _joined(found):
            going.setdefault(party, []).append(part)
        return True

    def _is_unusual(self, sealed: SealedGroup) -> bool:
        """Check whether an envelope of a group is large or traced, or its emitter is not known here."""
        group = sealed.group
        return (
            None in map(self._log.known_logins.get, set(group.emitter_ids))
            or (group.size > SMALL_BYTES and max(map(group.size_at, range(len(group)))) > SMALL_BYTES)
            or True in [tracing.IN_BYTES in head.headers for head in set(group.heads) if head.headers is not None]
        )

    def _parties(self, lane: Lane, graph_id: int) -> Sequence[BundleParty] | None:
        """Give the consumers of a lane that get the envelopes of a graph; None where they take another way."""
        graph = self._log.known_graph(graph_id)
        if graph is None:
            return None
        consumers = [(each, each.role.own) for each in lane.of_services(graph.consumer_services)]
        known = self._ways.get(graph_id)
        if known is None or known.graph is not graph or known.consumers != consumers:
            known = self._ways[graph_id] = _Way(graph, consumers, self._find_parties(graph, consumers))
        return known.parties

    def _find_parties(self, graph: Graph, consumers: Sequence[tuple[ServedRole, bool]]) -> Sequence[BundleParty] | None:
        if any(graph.workers_before(each.role.service) != () for each, _ in consumers):
            return None
        voters = [each for each, is_own in consumers if not is_own]
        parties = [[each] for each, is_own in consumers if is_own]
        return [self._bundles.party(each) for each in (*parties, voters) if each]

    def _may_take(self, party: BundleParty, parts: Sequence[GroupPart]) -> bool:
        """Check whether the consumers of a party get envelopes as they are, in their turn and by one call."""
        return party.accepts_parts and False not in [self._may_get(each, party, parts) for each in party.recipients]

    def _may_get(self, recipient: ServedRole, party: BundleParty, parts: Sequence[GroupPart]) -> bool:
        role, abilities = self._roles[recipient.role.id], recipient.abilities
        cursor, last = role.cursor, parts[-1].positions[-1]
        return (
            role.served is recipient
            and self._is_owed(role, parts)
            and cursor is not None
            and (cursor.until_position is None or last < cursor.until_position)
            and abilities.bundles
            and (len(party.recipients) == 1 or abilities.prepares > 1)
            and (not abilities.immediate_reply or not any(_replied(abilities.immediate_reply, each) for each in parts))
            and (not role.keys.is_wanted or not role.predecessors(recipient))
            and self._bundles.has_only(recipient, party)
        )

    @staticmethod
    def _is_owed(role: ConsumerRole, parts: Sequence[GroupPart]) -> bool:
        """Check whether a role gets all of some parts in its turn."""
        cursor, first = role.cursor, parts[0].positions[0]
        if role.state is not ConsumerState.READING or role.keys or cursor is None or cursor.from_position > first:
            return False
        # What comes behind an envelope of a key in hand is settled before it.
        is_ahead = cursor.position + cursor.above.bit_length() < first
        return is_ahead or not any(cursor.settled_of(part.positions) for part in parts)

    def _go_on(self, party: BundleParty) -> None:
        """Hand over what waits for a party, as far as its instances are free."""
        is_unusual = False
        while party.parts and not party.sending and len(party.out) < party.takers and not is_unusual:
            roles = [self._roles[recipient.role.id] for recipient in party.recipients]
            last = party.parts[-1].positions[-1]
            if self._log.has_corrections or False in [self._is_owed(role, party.parts) for role in roles]:
                is_unusual = True
            elif False in [self._ledger.is_reserved(role, last, partial(self._go_on, party)) for role in roles]:
                return
            elif not self._begin(party, roles):
                # Somebody else has a slot or a key, and gives it to whoever stands in line.
                is_unusual = not party.out
                if party.out:
                    return
        if is_unusual or party.has_queued:
            self._bundles.send_queued(party)

    def _take_slots(self, party: BundleParty) -> Mapping[RecipientProxy, ServedRole] | None:
        """Take a slot of an instance of each consumer, at once and of all or none."""
        taken: dict[RecipientProxy, ServedRole] = {}
        for recipient in party.recipients:
            instance = self._slots.take_at_once(recipient)
            if instance is None:
                for each in taken:
                    self._slots.free(each)
                return None
            taken[instance] = recipient
        return taken

    def _begin(self, party: BundleParty, roles: Sequence[ConsumerRole]) -> bool:
        """Hand over what may go now; false where that is nothing."""
        instances = self._take_slots(party)
        if instances is None:
            return False
        parts: Sequence[GroupPart] = ()
        ordered = [role for role in roles if role.keys.is_wanted]
        in_hand = {key for role in ordered for key in role.keys_in_hand.all()} if ordered else None
        if all(each.abilities.bundles for each in instances):
            if len(instances) == 1:
                parts = party.take_parts(in_hand)
            else:
                parts = party.take_parts(in_hand, min(map(self._gathering.may_prepare, instances)))
        if not parts:
            for each in instances:
                self._slots.free(each)
            return False
        for role in ordered:
            for part in parts:
                role.keys_in_hand.begin_all(part.positions, part.ordering_keys)
        slots = dict.fromkeys(instances, 1)
        if len(instances) > 1:
            most = sum([len(part.places) for part in parts]) - 1
            slots = {each: 1 + further for each, further in self._gathering.take_further(list(instances), most).items()}
        self._hand_over(GroupCall(party, instances, slots, parts, self._loop.time()))
        return True

    def _hand_over(self, call: GroupCall) -> None:
        call.party.out.add(call)
        self._out.add(call)
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
        if False in [each.went_well(call.ids, *said, stay_open=False) for each, said in call.answers.items()]:
            self._note(call)
            return
        party, number, items = call.party, len(call.ids), call.items
        self.envelopes += number
        for each in call.instances:
            role = self._roles[each.role.id]
            self._results.settled_group(each, call.positions, call.ids, items)
            role.in_flight.end_all(call.positions)
            if role.keys.is_wanted:
                role.keys_in_hand.end(call.positions)
        party.size.learn(number, self._loop.time() - call.began, has_failed=False)
        are_awaited = self._slots.are_awaited
        for each, slots in call.slots.items():
            self._context.release_slot(each, slots)
        if len(call.instances) > 1:
            self._gathering.note_run(call.busy_seconds())
        if are_awaited:
            # Whoever else waits for a slot, as a row that is due, is woken now and takes it first.
            self._loop.call_soon(self._go_on, party)
        else:
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
        call.party.end(call)
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


def _joined(found: Sequence[tuple[BundleParty, GroupPart]]) -> Sequence[tuple[BundleParty, GroupPart]]:
    """Give each party one part of a group, where envelopes of several graphs come to it."""
    parts: dict[BundleParty, GroupPart] = {}
    for party, part in found:
        parts[party] = part if party not in parts else parts[party].with_those_of(part)
    return list(parts.items())


def _replied(types: Collection[str], part: GroupPart) -> bool:
    """Check whether a part has envelopes of types to which a consumer gives immediate replies."""
    return not part.type_names.isdisjoint(types)
