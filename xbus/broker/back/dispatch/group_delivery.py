"""The short way of most envelopes: a role that has all before them gets the columns of a sealed group in one call.

An envelope has no object here, and no task or future of its own. What is unusual takes the lanes and the queues of
bundles: a role that wants order or decides with others, workers, corrections, traces, and whatever is not committed.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from xbus import tracing
from xbus.broker.back.dispatch.bundles import Bundles
from xbus.broker.back.dispatch.parties import BundleParty
from xbus.broker.back.log import SMALL_BYTES, GroupPart, LogReader, SmallEnvelope, parts_on_wire, small_envelopes
from xbus.broker.back.progress import ConsumerRole, ConsumerRoles, DeliveryLedger, Lane, OpenReplies, RunResults
from xbus.broker.back.recipients import BundleResult, RecipientProxy, ServedRole, Slots, fault_among_many
from xbus.broker.back.run import BackRunContext
from xbus.broker.journal.writes import Sealed, SealedGroup
from xbus.errors import CallError
from xbus.graph import Graph
from xbus.rpc.codec import Value
from xbus.states import ConsumerState

log = logging.getLogger(__name__)


class _Taker(NamedTuple):
    """A consumer that decides alone about the envelopes of a graph, which reach it as they were sent."""

    recipient: ServedRole
    role: ConsumerRole
    party: BundleParty


class GroupCall:
    """Envelopes that are out at an instance of a role.

    Args:
        taker: the role.
        instance: which one of it.
        parts: the envelopes.
        began: when that was, on the loop's clock.
    """

    __slots__ = ("began", "ids", "instance", "is_over", "parts", "positions", "taker")

    def __init__(self, taker: _Taker, instance: RecipientProxy, parts: Sequence[GroupPart], began: float) -> None:
        self.taker = taker
        self.instance = instance
        self.parts = parts
        self.began = began
        self.is_over = False
        self.positions = parts[0].positions if len(parts) == 1 else _positions(parts)
        if len(parts) == 1:
            self.ids = parts[0].column(parts[0].sealed.group.envelope_ids)
        else:
            self.ids = [each for part in parts for each in part.column(part.sealed.group.envelope_ids)]

    @property
    def items(self) -> int:
        """The number of all their items."""
        return sum([sum(part.column(part.sealed.group.items)) for part in self.parts])

    def bundle(self) -> list[SmallEnvelope]:
        """Give the envelopes as objects."""
        return [small for part in self.parts for small in small_envelopes(part)]


class GroupDelivery:
    """Hands sealed groups over to the roles at the head of the log.

    Args:
        log: knows graphs, emitters and corrections.
        ledger: where hand-overs are reserved.
        roles: how they are served, and what they are owed.
        open_replies: what consumers hold open already.
        slots: who is free.
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
        bundles: Bundles,
        results: RunResults,
        context: BackRunContext,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._roles = roles
        self._open_replies = open_replies
        self._slots = slots
        self._bundles = bundles
        self._results = results
        self._context = context
        self._loop = asyncio.get_running_loop()
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
        going: dict[_Taker, list[GroupPart]] = {}
        for each in sealed:
            if each.first != position + 1 or not isinstance(each, SealedGroup) or not self._add(lane, each, going):
                break
            position = each.last
        if False in [self._may_take(taker, parts) for taker, parts in going.items()]:
            lane.takers.clear()
            return
        lane.position = position
        for taker, parts in going.items():
            positions = _positions(parts)
            taker.role.in_flight.begin_all(positions)
            self._ledger.owe_all(taker.role, positions)
            taker.party.parts += parts
            taker.party.go_on = partial(self._go_on, taker)
        for taker in going:
            self._go_on(taker)

    def _is_unusual_now(self) -> bool:
        """Check whether any envelope may be corrected or open at a recipient, or too much is noted and not written."""
        replies = self._open_replies
        return self._log.has_corrections or bool(replies) or replies.may_any_be_open or not self._ledger.has_room

    def _add(self, lane: Lane, sealed: SealedGroup, going: dict[_Taker, list[GroupPart]]) -> bool:
        """Add to the roles of a lane their parts of a group; false where any of it is unusual."""
        if self._is_unusual(sealed):
            return False
        found: list[tuple[_Taker, GroupPart]] = []
        graph_ids = {each.graph_id for each in set(sealed.group.types)}
        for graph_id in graph_ids:
            takers = self._takers(lane, graph_id)
            if takers is None:
                return False
            if takers:
                part = GroupPart.of_graph(sealed, None if len(graph_ids) == 1 else graph_id)
                found += [(taker, part) for taker in takers]
        for taker, part in found if len(graph_ids) == 1 else _joined(found):
            going.setdefault(taker, []).append(part)
        return True

    def _is_unusual(self, sealed: SealedGroup) -> bool:
        """Check whether an envelope of a group is large or traced, or its emitter is not known here."""
        group = sealed.group
        return (
            None in map(self._log.known_logins.get, set(group.emitter_ids))
            or (group.size > SMALL_BYTES and max(map(group.size_at, range(len(group)))) > SMALL_BYTES)
            or True in [tracing.IN_BYTES in head.headers for head in set(group.heads) if head.headers is not None]
        )

    def _takers(self, lane: Lane, graph_id: int) -> Sequence[_Taker] | None:
        """Give the consumers of a lane that get the envelopes of a graph; None where they take another way."""
        graph = self._log.known_graph(graph_id)
        known = lane.takers.get(graph_id)
        if known is None or known[0] is not graph:
            known = lane.takers[graph_id] = (graph, None if graph is None else self._find_takers(lane, graph))
        return known[1]

    def _find_takers(self, lane: Lane, graph: Graph) -> Sequence[_Taker] | None:
        recipients = lane.of_services(graph.consumer_services)
        if sum([not each.role.own for each in recipients]) > 1:
            return None
        if any(graph.workers_before(each.role.service) != () for each in recipients):
            return None
        return [_Taker(each, self._roles[each.role.id], self._bundles.alone(each)) for each in recipients]

    def _may_take(self, taker: _Taker, parts: Sequence[GroupPart]) -> bool:
        """Check whether a role gets envelopes as they are, in its turn and by one call."""
        recipient, role, party = taker
        cursor, keys, abilities = role.cursor, role.keys, recipient.abilities
        first, last = parts[0].positions[0], parts[-1].positions[-1]
        return (
            role.state is ConsumerState.READING
            and role.served is recipient
            and not keys.is_wanted
            and not keys
            and cursor is not None
            and cursor.position + cursor.above.bit_length() < first
            and cursor.from_position <= first
            and (cursor.until_position is None or last < cursor.until_position)
            and abilities.bundles
            and (not abilities.immediate_reply or not any(_replied(abilities.immediate_reply, each) for each in parts))
            and party.has_room_for(parts)
            and self._bundles.has_only(recipient, party)
        )

    def _go_on(self, taker: _Taker) -> None:
        """Hand over what waits for a role, as far as its instances are free."""
        recipient, role, party = taker
        is_unusual = False
        while party.parts and not party.sending and len(party.out) < party.takers and not is_unusual:
            if not self._is_still_usual(taker):
                is_unusual = True
            elif not self._ledger.is_reserved(role, party.parts[-1].positions[-1], partial(self._go_on, taker)):
                return
            elif (instance := self._slots.take_at_once(recipient)) is None:
                # Somebody else has the slot, and gives it to whoever stands in line.
                is_unusual = not party.out
                if party.out:
                    return
            elif instance.abilities.bundles:
                self._hand_over(taker, instance, party.take_parts())
            else:
                self._slots.free(instance)
                is_unusual = True
        if is_unusual or party.has_queued:
            self._bundles.send_queued(party)

    def _is_still_usual(self, taker: _Taker) -> bool:
        """Check whether envelopes that wait may still go as they are."""
        _, role, party = taker
        cursor, first = role.cursor, party.parts[0].positions[0]
        is_owed = cursor is not None and cursor.position + cursor.above.bit_length() < first
        is_plain = not role.keys and not role.keys.is_wanted and not self._log.has_corrections
        return is_owed and is_plain and role.state is ConsumerState.READING

    def _hand_over(self, taker: _Taker, instance: RecipientProxy, parts: Sequence[GroupPart]) -> None:
        call = GroupCall(taker, instance, parts, self._loop.time())
        taker.party.out.add(call)
        self._out.add(call)
        try:
            logins = self._log.known_logins if instance.abilities.notes else None
            entries = parts_on_wire(parts, logins, wants_headers=instance.abilities.headers)
            instance.hand_over(call.ids, entries, partial(self._answered, call))
        except Exception as error:
            log.exception("a bundle died", extra={"action": "bundle_died", "role": instance.role.login})
            self._note(call, [fault_among_many(error)] * len(call.ids))

    def _answered(self, call: GroupCall, answer: Value, error: CallError | None) -> None:
        if call.is_over:
            return
        instance, ids = call.instance, call.ids
        if error is not None or not instance.has_committed(ids, answer):
            self._note(call, instance.results_of(call.bundle(), answer, error))
            return
        self._end(call)
        (_, role, party) = call.taker
        self.envelopes += len(ids)
        self._results.settled_group(instance, call.positions, ids, call.items)
        role.in_flight.end_all(call.positions)
        party.size.learn(len(ids), self._loop.time() - call.began, has_failed=False)
        are_awaited = self._slots.are_awaited
        self._context.release_slot(instance)
        if are_awaited:
            # Whoever else waits for the slot, as a row that is due, is woken now and takes it first.
            self._loop.call_soon(self._go_on, call.taker)
        else:
            self._go_on(call.taker)

    def _note(self, call: GroupCall, results: Sequence[BundleResult]) -> None:
        """Have noted what became of each envelope, where not all are committed."""
        self._end(call)
        seconds = self._loop.time() - call.began
        recipient, _, party = call.taker
        self._bundles.begin_noting(party, {call.instance: recipient}, call.bundle(), results, seconds)

    def _end(self, call: GroupCall) -> None:
        call.is_over = True
        call.taker.party.out.discard(call)
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
                    call.instance.stop_all(call.bundle())


def _joined(found: Sequence[tuple[_Taker, GroupPart]]) -> Sequence[tuple[_Taker, GroupPart]]:
    """Give each role one part of a group, where envelopes of several graphs come to it."""
    parts: dict[_Taker, GroupPart] = {}
    for taker, part in found:
        parts[taker] = part if taker not in parts else parts[taker].with_those_of(part)
    return list(parts.items())


def _positions(parts: Sequence[GroupPart]) -> Sequence[int]:
    """Give the positions of all envelopes of some parts, in their order."""
    if len(parts) == 1:
        return parts[0].positions
    first, last = parts[0].positions[0], parts[-1].positions[-1]
    if sum([len(part.positions) for part in parts]) == last - first + 1:
        return range(first, last + 1)
    return [each for part in parts for each in part.positions]


def _replied(types: Collection[str], part: GroupPart) -> bool:
    """Check whether a part has envelopes of types to which a consumer gives immediate replies."""
    return not part.type_names.isdisjoint(types)
