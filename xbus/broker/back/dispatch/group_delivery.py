"""The way of small envelopes: those that wait for the same consumers go in one call, or in two where they decide
together.

A sealed group goes as columns to the consumers that have all before them. An envelope has no object then, and no task
or future of its own. What was read back waits as parts beside those of groups, and goes the same way.
"""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from xbus import tracing
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.group_calls import BundleCalls, BundleWorkers, Outcome
from xbus.broker.back.dispatch.group_outcomes import GroupOutcomes
from xbus.broker.back.dispatch.parties import MOST_ENVELOPES, BundleParty, GroupCall, positions_of
from xbus.broker.back.log import (
    SMALL_BYTES,
    BundleEntry,
    GroupPart,
    LogReader,
    PagePart,
    Part,
    SmallEnvelope,
)
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, Lane
from xbus.broker.back.recipients import (
    BundleStatus,
    RecipientFailed,
    RecipientProxy,
    ServedRole,
    Slots,
    fault_among_many,
)
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.writes import GroupType, Sealed, SealedGroup
from xbus.errors import CallError, Failed, Refused
from xbus.rpc.codec import Value
from xbus.rpc.frames import BAD_ANSWER

log = logging.getLogger(__name__)

_IS_TRACED, _GOES_ALONE = attrgetter("is_traced"), attrgetter("goes_alone")

MOST_WAYS = 1_000
"""So many ways are known at a time. More take memory where groups have many types, each time others."""


class _ReadyWay(NamedTuple):
    """The way of groups of some event types, for as long as nobody comes, goes, or is configured otherwise.

    Args:
        parties: those that get envelopes, with the graphs of these; None where they get all.
        others: the other parties of their consumers, in which nothing may wait or be under way.
    """

    parties: Sequence[tuple[BundleParty, frozenset[int] | None]]
    others: Sequence[BundleParty]


class GroupDelivery:
    """Hands small envelopes over to the consumers that decide about them.

    Of all parties of a consumer only one has anything waiting, so that envelopes leave in the order of the log.

    Args:
        log: knows graphs, emitters and corrections.
        ledger: where hand-overs are reserved.
        roles: how they are served, and what they are owed.
        slots: who is free.
        gathering: waits for those who are not, and knows who keeps the others waiting.
        calls: bring what takes more than a call or two.
        workers: transform what waits before consumers get it.
        outcomes: take notes.
        runtime: its tasks do that, and its clock says how long calls take.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        roles: ConsumerRoles,
        slots: Slots[RecipientProxy],
        gathering: ConsumerGathering,
        calls: BundleCalls,
        workers: BundleWorkers,
        outcomes: GroupOutcomes,
        runtime: Runtime,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._roles = roles
        self._slots = slots
        self._gathering = gathering
        self._calls = calls
        self._workers = workers
        self._outcomes = outcomes
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._loop = asyncio.get_running_loop()
        self._ways: dict[tuple[Lane, frozenset[GroupType]], _ReadyWay] = {}
        """The ways of groups of a lane, by the types in them, as far as they are usual."""
        self._is_finishing = False
        self._left: dict[BundleParty, None] = {}
        """The parties that a consumer has left, and of which anything is under way."""
        self.parties_of: dict[ServedRole, list[BundleParty]] = {}
        """The parties of each consumer: one has what waits for it, and others are not over yet."""
        self.envelopes = 0
        """The number of envelopes that this way has committed since this process began, those of pages among them."""

    # -- what was sealed just now ------------------------------------------------------------------------------------

    def take(self, lane: Lane, sealed: Sequence[Sealed]) -> None:
        """Hand over envelopes that were sealed just now, as far as they are usual; the lane passes these.

        Args:
            lane: one that rests, as it has handed out all before: its roles are served, and read.
        """
        # Any envelope may be corrected, or too much is noted and not written.
        if self._log.has_corrections or not self._ledger.has_room:
            return
        going: dict[BundleParty, None] = {}
        for each in sealed:
            shares = self._shares(lane, each) if isinstance(each, SealedGroup) else None
            if shares is None:
                break
            lane.position = each.last
            for party, part in shares:
                going[party] = None
                (party.raw if party.by_workers else party.parts).append(part)
                for role in party.roles:
                    role.in_flight.positions.update(part.positions)
                    self._ledger.owe_all(role, part.positions)
        for party in going:
            self.go_on(party)

    def forget_ways(self, _: object = None) -> None:
        """Find out anew which consumers envelopes lead to: some have come or gone, or are configured otherwise."""
        self._ways.clear()

    def _shares(self, lane: Lane, sealed: SealedGroup) -> Sequence[tuple[BundleParty, GroupPart]] | None:
        """Give the consumers of a lane their parts of a group that follows what it has handed out.

        A consumer that decides alone and has no room gets none: it is behind, and goes on by itself.

        Returns:
            None where an envelope takes another way, is large or traced, or its emitter is not known here.
        """
        group = sealed.group
        if sealed.first != lane.position + 1:
            return None
        known = self._log.known_logins
        for emitter_id in group.emitter_ids:
            if known.get(emitter_id) is None:
                return None
        if group.size > SMALL_BYTES and max(map(group.size_at, range(len(group)))) > SMALL_BYTES:
            return None
        for head in group.heads:
            if head.headers is not None and tracing.IN_BYTES in head.headers:
                return None
        types = frozenset(group.types)
        way = self._ways.get((lane, types)) or self._find_way(lane, types)
        if way is None or (way.others and False in [party.is_idle for party in way.others]):
            return None
        whole = GroupPart(group, range(sealed.first, sealed.last + 1))
        parts: dict[frozenset[int] | None, GroupPart] = {None: whole}
        shares: list[tuple[BundleParty, GroupPart]] = []
        full: list[BundleParty] = []
        for party, graph_ids in way.parties:
            if graph_ids is not None and graph_ids not in parts:
                parts[graph_ids] = whole.of_graphs(graph_ids)
            part = parts[graph_ids]
            if not (party.parts or party.raw or party.at_workers) or party.has_room_for(part):
                shares.append((party, part))
            else:
                full.append(party)
        if full:
            if not shares or any(len(party.recipients) > 1 for party in full):
                return None
            for party in full:
                self._gathering.leave_behind(party.recipients[0])
        return shares

    def _find_way(self, lane: Lane, types: frozenset[GroupType]) -> "_ReadyWay | None":
        """Find which consumers get groups of some types; None where one of them needs a run, or a look."""
        if self._is_finishing:
            return None
        leading: dict[BundleParty, set[int]] = {}
        for each in types:
            graph = self._log.known_graphs.get(each.graph_id)
            consumers = lane.of_services(() if graph is None else graph.consumer_services)
            parties = self._calls.parties([each.graph_id], [each.name], consumers)
            if graph is None or sum(map(len, parties)) < len(consumers):
                return None
            for party in map(self.party, parties):
                # All of a party are behind the same workers.
                party.by_workers |= graph.workers_before(party.recipients[0].role.service) != ()
                leading.setdefault(party, set()).add(each.graph_id)
        everyone = {recipient: self._roles[recipient.role.id] for party in leading for recipient in party.recipients}
        # Of two parties a role would take the envelopes of the second for passed when it is owed those of the first,
        # and both would have envelopes of one ordering key.
        if len(everyone) < sum([len(party.recipients) for party in leading]):
            return None
        for recipient, role in everyone.items():
            is_bounded = role.cursor is None or role.cursor.until_position is not None
            if is_bounded or (role.keys.is_wanted and role.predecessors(recipient)):
                return None
        others = {party for recipient in everyone for party in self.parties_of[recipient]} - leading.keys()
        every = {each.graph_id for each in types}
        found = [(party, None if graph_ids == every else frozenset(graph_ids)) for party, graph_ids in leading.items()]
        if len(self._ways) >= MOST_WAYS:
            self._ways.clear()
        way = self._ways[lane, types] = _ReadyWay(found, tuple(others))
        return way

    # -- what waits --------------------------------------------------------------------------------------------------

    def put(self, party: BundleParty, part: Part, *, is_ready: bool = False) -> None:
        """Have envelopes wait in a party, of which they are the next ones; see ``BundleParty.add``."""
        for role in party.roles:
            role.in_flight.begin_all(part.positions)
        party.add(part, is_ready=is_ready)
        # Whoever adds them goes on first.
        self._loop.call_soon(self.go_on, party)

    def party(self, recipients: Sequence[ServedRole]) -> BundleParty:
        """Give the party of some consumers, to which the next envelope for them may be added."""
        for party in self.parties_of.get(recipients[0], ()):
            if party.is_for(recipients):
                return party
        party = BundleParty(recipients, [self._roles[each.role.id] for each in recipients])
        self._ways.clear()
        for recipient in recipients:
            self.parties_of.setdefault(recipient, []).append(party)
        return party

    def split(self, recipient: ServedRole) -> None:
        """Let a consumer that keeps the others waiting take what waits for all of them at its own pace."""
        for party in list(self.parties_of.get(recipient, ())):
            if len(party.recipients) > 1:
                # Its rows hold what waits of the same keys.
                self._outcomes.set_aside(recipient, self._let_leave(party, recipient))
                alone = self.party([recipient])
                alone.by_workers |= party.by_workers
                for part in party.parts:
                    self.put(alone, part, is_ready=True)
                for part in party.unready():
                    self.put(alone, part)

    def left(self, recipient: ServedRole) -> None:
        """Leave what waits for a recipient that gets nothing more in its turn, before another one of its role comes.

        Else: 1. The last call takes its time to be noted. 2. Another recipient comes, and its lane passes what waits
        here, as that counts as being brought. 3. The call is noted, and nobody brings what waited.
        """
        for party in list(self.parties_of.get(recipient, ())):
            self._outcomes.leave_parts([recipient], party.all_parts())
            self._outcomes.leave(recipient, self._let_leave(party, recipient))

    def _let_leave(self, party: BundleParty, recipient: ServedRole) -> list[SmallEnvelope]:
        """Let the others of a party get what waits without one of them; see ``BundleParty.leave``."""
        apart = party.leave(recipient)
        if party.is_under_way:
            self._left[party] = None
        self._forget(party, recipient)
        if not party.recipients:
            party.take_all()
        self._forget_if_over(party)
        return apart

    def _forget_if_over(self, party: BundleParty) -> None:
        """Forget a party that a consumer has left, as soon as nothing of it waits or is under way."""
        if party.is_over:
            self._left.pop(party, None)
            for recipient in party.recipients:
                self._forget(party, recipient)

    def _forget(self, party: BundleParty, recipient: ServedRole) -> None:
        self._ways.clear()
        if others := [each for each in self.parties_of.pop(recipient, ()) if each is not party]:
            self.parties_of[recipient] = others

    def all_parties(self) -> Collection[BundleParty]:
        """Give the parties of all consumers, in an order that is the same in each run."""
        return dict.fromkeys(party for parties in self.parties_of.values() for party in parties)

    # -- hand-over ---------------------------------------------------------------------------------------------------

    def go_on(self, party: BundleParty, *, taken: dict[int, RecipientProxy] | None = None) -> None:
        """Hand over what waits for a party, as far as its instances are free.

        Args:
            taken: instances of which a slot is taken, by their role ids; those that are left in it are not given any.
        """
        if party.by_workers:
            self._go_to_workers(party)
        while party.parts and party.turn is None:
            if (party.out and party.at_work >= max(1, party.takers)) or not self._may_go(party):
                return
            instances: dict[RecipientProxy, ServedRole] = {}
            goes_alone = False
            for recipient in party.recipients:
                instance = taken.pop(recipient.role.id, None) if taken else None
                instance = instance or self._slots.take_at_once(recipient)
                if instance is None:
                    break
                instances[instance] = recipient
                # A program that came since they were added may do less than those of before.
                if not instance.abilities.bundles or (len(party.recipients) > 1 and instance.abilities.prepares <= 0):
                    goes_alone = True
            is_whole = len(instances) == len(party.recipients)
            call = self._take(party, instances, dict.fromkeys(instances, 1)) if is_whole else None
            if call is None:
                for each in instances:
                    self._slots.free(each)
                # Somebody else has a slot or a key, and gives it to whoever stands in line.
                if not is_whole or not party.out:
                    party.turn = self._begin(party, self._wait_for_turn(party))
                return
            if goes_alone or (party.by_workers and call.parts[0].goes_alone):
                self._note(call, dict.fromkeys(instances, [BundleStatus.GOES_ALONE] * len(call.ids)))
            elif True in map(_IS_TRACED, call.parts):
                self._note(call, None)
            else:
                self._hand_over(call)
            if party.by_workers:
                self._go_to_workers(party)

    def _go_to_workers(self, party: BundleParty) -> None:
        """Have workers transform what comes next, while the consumers have what is before it."""
        while not self._is_finishing and (call := party.next_to_workers()) is not None:
            call.task = self._begin(party, self._workers.carry_out(call, partial(self.go_on, party)))
        self._forget_if_over(party)

    def _may_go(self, party: BundleParty) -> bool:
        """Check whether all consumers of a party get what waits as it was sent, and durably may.

        Envelopes that others go before, or that not all get, wait no longer then, or go first.
        """
        if self._is_finishing:
            return False
        positions = positions_of(party.parts)
        first, last = positions[0], positions[-1]
        is_due, is_reserved = not self._log.has_corrections, True
        for role in party.roles:
            cursor = role.cursor
            # What comes behind an envelope of a key in hand is settled before it.
            if role.keys.held or cursor is None or cursor.position + cursor.above.bit_length() >= first:
                blocked = (role.keys.blocked(each.ordering_keys, each.positions) for each in party.parts)
                is_due = is_due and not role.settled_of(positions) and not any(blocked)
            if last > role.reserved_to:
                is_reserved = False
        if not is_due:
            party.apart += self._outcomes.keep_due(party)
            if party.apart:
                party.turn = self._begin(party, self._bring_apart(party))
            party.note_change()
            if party.apart or not party.parts:
                self._forget_if_over(party)
                return False
        if is_reserved:
            return True
        last = party.last_of_next(party.keys_in_hand())
        if not party.is_within_reach(last):
            # It goes on when one of the calls that are out is over.
            return False
        # One commit makes it durable for all of them: nobody waits before the last one has asked.
        return False not in [self._ledger.is_reserved(role, last, partial(self.go_on, party)) for role in party.roles]

    async def _bring_apart(self, party: BundleParty) -> None:
        """Bring envelopes that not all get, or not as they were sent, before those that wait behind them."""
        try:
            first: dict[BundleParty, None] = {}
            while party.apart:
                part, recipients = party.apart.pop(0)
                party.note_change()
                if not recipients:
                    continue
                if self._log.is_corrected(part.smalls()[0].envelope):
                    await self._outcomes.bring_in_run(recipients, part)
                else:
                    first[of_some := self.party(recipients)] = None
                    of_some.by_workers |= party.by_workers
                    self.put(of_some, part, is_ready=True)
            for of_some in first:
                await of_some.settled()
        finally:
            self._end_turn(party)
        self.go_on(party)

    async def _wait_for_turn(self, party: BundleParty) -> None:
        """Wait until a slot of each consumer is free, and a key of what waits; hand over."""
        taken: dict[int, RecipientProxy] = {}
        try:
            try:
                await party.key_free()
                found = await self._gathering.take(
                    list(party.recipients),
                    lambda each: each in party.recipients and self._roles[each.role.id].is_served_by(each),
                )
                taken = {instance.role.id: instance for instance in found}
                if taken and party.parts:
                    last = party.last_of_next(party.keys_in_hand())
                    if party.is_within_reach(last):
                        await self._ledger.reserve(taken, last)
                for recipient in list(party.recipients):
                    # Nobody would ever have a slot of it.
                    if not self._roles[recipient.role.id].is_served_by(recipient):
                        self.left(recipient)
            finally:
                self._end_turn(party)
            # Whatever has changed meanwhile is seen there.
            self.go_on(party, taken=taken)
        finally:
            self._outcomes.release(dict.fromkeys(taken.values(), 1))

    def _end_turn(self, party: BundleParty) -> None:
        if party.turn is asyncio.current_task():
            party.turn = None
        party.note_change()
        self._forget_if_over(party)

    def _take(
        self,
        party: BundleParty,
        instances: Mapping[RecipientProxy, ServedRole],
        slots: dict[RecipientProxy, int],
        *,
        follows: bool = False,
    ) -> GroupCall | None:
        """Take what may go now to some instances; None where that is nothing.

        Args:
            slots: those of the instances that are taken; the call keeps what it needs of them, and takes more.
            follows: whether they go in the messages that have an earlier call committed.
        """
        in_hand: set[str] | None = None
        for role in party.roles:
            if role.keys.is_wanted:
                in_hand = party.keys_in_hand()
                break
        if len(instances) == 1:
            parts = party.take(in_hand)
        else:
            most = MOST_ENVELOPES
            if has_several := len(party.parts) > 1 or len(party.parts[0].positions) > 1:
                most = min(map(self._gathering.may_prepare, slots, slots.values()))
            parts = party.take(in_hand, most)
            if parts and (has_several or follows):
                needed = self._gathering.take_for(slots, sum([len(part.positions) for part in parts]))
                for each, number in needed.items():
                    slots[each] -= min(slots[each], number)
                slots = needed
        if not parts:
            return None
        for role in party.roles if in_hand is not None else ():
            for part in parts if role.keys.is_wanted else ():
                role.keys_in_hand.begin_all(part.positions, part.ordering_keys)
        call = GroupCall(party, instances, slots, parts, self._clock.monotonic())
        party.out.add(call)
        return call

    def _hand_over(self, call: GroupCall, before: GroupCall | None = None) -> None:
        """Hand the envelopes of a call over, in the messages that have another call committed where there is one."""
        left = iter(call.instances)
        written: dict[tuple[bool, bool], Sequence[BundleEntry]] = {}
        try:
            for instance in left:
                notes, headers = form = instance.abilities.notes, instance.abilities.headers
                if form not in written:
                    logins = self._log.known_logins if notes else None
                    written[form] = call.on_wire(logins, wants_headers=headers)
                if before is not None:
                    taker = partial(self._gone_on, before, call, instance)
                    instance.go_on(before.ids, call.ids, written[form], taker)
                elif len(call.instances) > 1:
                    instance.hand_over(call.ids, written[form], partial(self._voted, call, instance), stays_open=True)
                else:
                    instance.hand_over(call.ids, written[form], partial(self._answered, call, instance))
        except Exception as error:
            log.exception("a bundle died", extra={"action": "bundle_died", "roles": call.logins})
            bundle, faults = call.bundle(), [fault_among_many(error)] * len(call.ids)
            for each in call.instances:
                each.stop_all(bundle)
            self._note(call, dict.fromkeys(call.instances, faults))
            if before is not None:
                self._commit(before, [instance, *left])

    # -- answers -----------------------------------------------------------------------------------------------------

    def _voted(self, call: GroupCall, instance: RecipientProxy, answer: Value, error: CallError | None) -> None:
        """Take an answer of a consumer that decides with others; have all committed when each has prepared all."""
        call.answers[instance] = (answer, error)
        if call.is_over or len(call.answers) < len(call.instances):
            return
        answers, call.answers = call.answers, {}
        if call.follows:
            call.begin_votes()
        if False not in [each.went_well(call.ids, *said, stay_open=True) for each, said in answers.items()]:
            following = self._following(call)
            if following is None:
                self._commit(call, call.instances)
            else:
                self._hand_over(following, call)
                self._go_to_workers(call.party)
            return
        bundle, votes = call.bundle(), {}
        for each, said in answers.items():
            # Who has not begun what follows, as its commit failed or it is about to stop, is asked for its votes alone.
            if not call.follows or said != ([[]] * len(bundle), None):
                votes[each] = each.votes_of(bundle, *said)
            else:
                each.began_none(call.ids)
            if call.follows and said[1] is not None:
                call.counted = [*call.counted, *[vote for vote in votes[each] if isinstance(vote, RecipientFailed)]]
        self._note(call, votes, is_vote=True)

    def _following(self, call: GroupCall) -> GroupCall | None:
        """Take what goes with the commit of a call; None where nothing waits, or where the commit goes alone."""
        party = call.party
        if not party.parts or party.is_closing or True in map(_IS_TRACED, party.parts):
            return None
        if party.by_workers and True in map(_GOES_ALONE, party.parts):
            return None
        for each in call.instances:
            if not each.abilities.prepares_next or each.owes or not self._slots.may_go_on(each):
                return None
            role = self._roles[each.role.id]
            if role.keys.is_wanted and call.positions[0] not in role.keys_in_hand.key_at:
                # It wants order since these were handed over: which keys they have is not known here.
                return None
        if party.turn is not None or not self._may_go(party):
            return None
        following = self._take(party, call.instances, call.slots, follows=True)
        if following is not None:
            following.follows = True
        return following

    def _commit(self, call: GroupCall, instances: Iterable[RecipientProxy]) -> None:
        for each in instances:
            each.commit(call.ids, partial(self._answered, call, each))

    def _gone_on(
        self, call: GroupCall, following: GroupCall, instance: RecipientProxy, answer: Value, error: CallError | None
    ) -> None:
        """Take the answers of a consumer to a commit and to what followed it."""
        said = answer if isinstance(answer, list) and len(answer) == len(call.ids) + len(following.ids) else []
        if not said and (error is None or isinstance(error, Refused) or error.code == BAD_ANSWER):
            # Nobody can tell which envelopes it is about: each comes again alone.
            error = Failed(f"the answer is no list about both: {error or answer!r:.200}", code="nonsense")
        committed, prepared = said[: len(call.ids)], said[len(call.ids) :]
        self._answered(call, instance, committed, error)
        self._voted(following, instance, prepared, error)

    def _answered(self, call: GroupCall, instance: RecipientProxy, answer: Value, error: CallError | None) -> None:
        """Take the last answer of a consumer; have its outcome noted when it is the last of all."""
        if call.is_over:
            return
        call.answers[instance] = (answer, error)
        if not instance.went_well(call.ids, answer, error, stay_open=False):
            call.has_failed = True
        if len(call.answers) < len(call.instances):
            return
        if call.has_failed:
            self._note(call, self._outcomes.read(call))
            return
        party, number, is_awaited = call.party, len(call.ids), False
        self.envelopes += number
        for each, slots in call.slots.items():
            role = self._roles[each.role.id]
            self._outcomes.results.settled_group(role, each.role.login, call.positions, call.ids, call.items)
            for part in call.parts:
                if isinstance(part, PagePart):
                    self._outcomes.results.cure([small.envelope for small in part.envelopes], each)
            if self._gathering.awaited:
                self._gathering.note_idle(role)
            if each.owes:
                self._outcomes.release({each: slots})
            elif self._slots.free(each, slots):
                is_awaited = True
        party.size.learn(number, self._clock.monotonic() - call.began, has_failed=False)
        if call.busy_before:
            self._gathering.note_run(call.busy_seconds())
        self._end(call)
        if is_awaited:
            # Whoever else waits for a slot, as a row that is due, is woken now and takes it first.
            self._loop.call_soon(self.go_on, party)
        elif party.parts or party.raw:
            self.go_on(party)

    def _note(self, call: GroupCall, outcome: Outcome | None, *, is_vote: bool = False) -> None:
        """Have a task note what becomes of the envelopes of a call.

        Args:
            outcome: None where the task has to bring them first.
            is_vote: whether the outcome is that of a vote, which is to be carried on first.
        """
        call.is_over = True
        call.task = self._begin(call.party, self._end_call(call, outcome, is_vote=is_vote))

    async def _end_call(self, call: GroupCall, outcome: Outcome | None, *, is_vote: bool) -> None:
        """Note what became of the envelopes of a call; give its slots and keys back, whatever goes wrong."""
        recipients, bundle, party = list(call.instances.values()), call.bundle(), call.party
        shares = dict.fromkeys(call.instances, bundle)
        try:
            try:
                if outcome is None:
                    outcome = await self._calls.carry_out(call.instances, bundle)
                elif is_vote:
                    outcome = await self._calls.carry_on(shares, outcome)
                self._learn(call, outcome)
                self._outcomes.note_committed(shares, outcome)
            finally:
                self._outcomes.release(call.slots)
            if any(results.count(BundleStatus.COMMITTED) < len(results) for results in outcome.values()):
                # Before the failures are noted, which may take long: another recipient may come in the meantime.
                going_on, call.apart = self._outcomes.sort_out(party, recipients, bundle, outcome)
                if self._is_finishing:
                    self._outcomes.leave_parts(recipients, call.chosen(going_on))
                else:
                    party.put_back(call.chosen(going_on))
                await self._outcomes.note_failed(shares, outcome, call.counted)
        finally:
            self._outcomes.end_keys(call)
            for recipient in recipients:
                self._gathering.note_idle(self._roles[recipient.role.id])
            if not call.apart:
                self._end(call)
        if call.apart:
            try:
                while call.apart:
                    await self._outcomes.bring_next_apart(call, is_finishing=self._is_finishing)
            finally:
                self._end(call)
        # Whoever else waits for the slots, as a row that is due, is woken now and takes them first.
        await asyncio.sleep(0)
        self.go_on(party)

    def _learn(self, call: GroupCall, outcome: Outcome) -> None:
        """Learn how many go together, and who keeps the others waiting."""
        committed = max([results.count(BundleStatus.COMMITTED) for results in outcome.values()])
        has_failed = any(RecipientFailed in set(map(type, results)) for results in outcome.values())
        self.envelopes += committed
        call.party.size.learn(committed, self._clock.monotonic() - call.began, has_failed=has_failed)
        if len(call.instances) > 1:
            self._gathering.note_run(call.busy_seconds())

    def _begin(self, party: BundleParty, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
        logins = ", ".join([recipient.role.login for recipient in party.recipients])
        try:
            task = self._tasks.create_task(work, name=f"groups to {logins}")
        except RuntimeError:
            # The broker is ending: the next one reads again what is not settled.
            work.close()
            return None
        for role in party.roles:
            role.bring_by(task)
        return task

    def _end(self, call: GroupCall) -> None:
        party = call.party
        call.is_over = True
        party.out.discard(call)
        if party.change is not None:
            party.note_change()
        if party.is_closing:
            self._forget_if_over(party)

    async def finish(self, seconds: float) -> None:
        """Hand nothing more over, and wait for what is out; what takes longer is broken off."""
        self._is_finishing = True
        self._ways.clear()
        parties = dict.fromkeys((*self.all_parties(), *self._left))
        tasks = [task for party in parties for task in (party.turn, *[call.task for call in party.at_workers]) if task]
        for party in parties:
            self._outcomes.leave_parts(party.recipients, party.take_all())
            for part, recipients in party.apart:
                self._outcomes.leave_parts(recipients, [part])
            party.apart = []
        for task in tasks:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                for party in parties:
                    await party.all_back()
        except TimeoutError:
            for call in [call for party in parties for call in party.out]:
                if call.task is None:
                    self._end(call)
                    for instance in call.instances:
                        instance.stop_all(call.bundle())
                else:
                    call.task.cancel()
                    tasks.append(call.task)
        if tasks:
            await asyncio.wait(tasks)
