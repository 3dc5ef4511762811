"""Lanes: readers of the log on behalf of consumer roles that stand at the same place.

Roles in one lane get an envelope in one run, so that its workers work once for all of them. A role that comes back, or
starts in the past, has a lane of its own until it has caught up.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from xbus.broker.back.dispatch.pages import BundleRules, LanePage, PageReader, Way
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, Lane
from xbus.broker.back.recipients import RoleEvents, ServedRole
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import Sealed
from xbus.states import ConsumerState


class Deliverer(BundleRules, Protocol):
    """Brings an envelope to recipients."""

    async def deliver(
        self,
        envelope: LogEnvelope,
        recipients: Iterable[ServedRole],
        small: SmallEnvelope | None,
        *,
        in_company: bool,
    ) -> Collection[ServedRole]:
        """See to it that these recipients get an envelope. Returns as soon as it is on its way, or set aside, with
        those that were left out.

        Args:
            small: the envelope with its items, where it is small and they were read.
            in_company: whether others wait while these take their time.
        """

    def deliver_at_once(
        self, smalls: Sequence[SmallEnvelope], ways: Sequence[Way], recipients: Mapping[Way, Sequence[ServedRole]]
    ) -> int:
        """Have the recipients of small envelopes get the first of them, as far as nothing must be waited for.

        Args:
            ways: of each of them.
            recipients: those that get the envelopes of a way.

        Returns:
            How many those are.
        """


class ShortWay(Protocol):
    """Brings envelopes that were sealed just now to the recipients of a lane that has handed out all before."""

    def take(self, lane: Lane, sealed: Sequence[Sealed]) -> None:
        """Hand over envelopes in their order, and have the lane pass those that are on their way."""

    def forget_ways(self) -> None:
        """Find out anew which recipients a lane reads for."""


IDLE_ROLES_PER_LOOK = 200
"""So many cursors of roles that are owed nothing are moved at once. More makes the write that follows longer."""


class Lanes:
    """All lanes.

    Args:
        log: what they read.
        ledger: where the roles stand.
        deliverer: what they hand envelopes to.
        short_way: what takes envelopes that are sealed while a lane is at the head of the log.
        roles: those that are reading or slow have a lane; one whose breaker tripped gets it back when it recovers.
        tasks: where they run.
        events: told of each recipient that goes on together with others again.
        gather_seconds: how long a new lane waits before it starts: recipients that come up together then share it, and
            one that holds others up lets them go first. Runs of one envelope come one after the other, so ahead of
            them it would hold them up still.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        deliverer: Deliverer,
        short_way: ShortWay,
        roles: ConsumerRoles,
        tasks: asyncio.TaskGroup,
        events: RoleEvents,
        gather_seconds: float,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._deliverer = deliverer
        self._short_way = short_way
        self._roles = roles
        self._tasks = tasks
        self._events = events
        self._gather_seconds = gather_seconds
        self._lanes: list[Lane] = []
        log.on_grown(self._grew)

    def _grew(self, sealed: Sequence[Sealed]) -> None:
        for lane in self._lanes:
            if lane.rests and sealed:
                self._short_way.take(lane, sealed)
            if lane.position < self._log.head:
                lane.woken.set()

    def arrived(self, recipient: ServedRole) -> None:
        """Read on for a consumer from where its role stands."""
        if recipient.role.worker:
            return
        role = self._roles[recipient.role.id]
        if role.cursor is None or role.lane is not None or role.state is not ConsumerState.READING:
            return
        lane = self._joinable_at(role.cursor.position)
        if lane is None:
            self._begin(Lane(role.cursor.position), recipient)
        else:
            self._join(lane, recipient)

    def _begin(self, lane: Lane, recipient: ServedRole) -> None:
        self._lanes.append(lane)
        self._join(lane, recipient)
        lane.task = self._tasks.create_task(self._read(lane), name=f"lane from {lane.position}")

    def _join(self, lane: Lane, recipient: ServedRole) -> None:
        lane.add(recipient)
        self._short_way.forget_ways()
        self._roles[recipient.role.id].lane = lane

    def left(self, recipient: ServedRole) -> None:
        """Read no longer for a recipient."""
        lane = self._lane_of(recipient)
        if lane is not None:
            self._leave(lane, recipient)
            if not len(lane):
                self._end(lane)

    def _lane_of(self, recipient: ServedRole) -> Lane | None:
        return None if recipient.role.worker else self._roles[recipient.role.id].lane

    def _leave(self, lane: Lane, recipient: ServedRole) -> None:
        self._ledger.pass_to(recipient.role.id, lane.position)
        lane.remove(recipient)
        self._short_way.forget_ways()
        self._roles[recipient.role.id].lane = None

    def split(self, recipient: ServedRole) -> None:
        """Let a recipient that holds others up go on at its own pace. At the end of the log it joins them again."""
        lane = self._lane_of(recipient)
        if lane is not None and len(lane) > 1:
            self._leave(lane, recipient)
            self._roles[recipient.role.id].fall_behind()
            self._begin(Lane(lane.position, of_slow=True), recipient)

    def stop(self) -> None:
        """Hand out no more envelopes."""
        for lane in list(self._lanes):
            for recipient in lane.recipients():
                self._leave(lane, recipient)
            self._end(lane)

    def _end(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        if lane.task is not None:
            lane.task.cancel()

    def _joinable_at(self, position: int) -> Lane | None:
        return next((lane for lane in self._lanes if lane.joinable and lane.position == position), None)

    async def note_idle(self) -> None:
        """Have it written how far the roles have come that are owed nothing; of many, a part at each call."""
        for lane in self._lanes:
            for recipient in lane.next_ones(IDLE_ROLES_PER_LOOK):
                self._ledger.pass_to(recipient.role.id, lane.position)

    async def _read(self, lane: Lane) -> None:
        await asyncio.sleep(self._gather_seconds)
        async with PageReader(self._log, self._deliverer, lane) as pages:
            while True:
                lane.joinable = False
                page = await pages.next()
                await self._hand_out(lane, page)
                lane.position = max(lane.position, page.upto)
                if lane.position < self._log.head:
                    continue
                self._reach_head(lane)
                ahead = self._joinable_at(lane.position)
                if ahead is not None:
                    self._merge(lane, ahead)
                    return
                lane.joinable = True
                lane.woken.clear()
                lane.rests = True
                await lane.woken.wait()
                lane.rests = False

    def _reach_head(self, lane: Lane) -> None:
        if lane.of_slow:
            lane.of_slow = False
            for recipient in lane.recipients():
                self._roles[recipient.role.id].catch_up()

    def _merge(self, lane: Lane, ahead: Lane) -> None:
        for recipient in lane.recipients():
            self._join(ahead, recipient)
            self._events.caught_up.publish(recipient)
        self._lanes.remove(lane)

    async def _hand_out(self, lane: Lane, page: LanePage) -> None:
        envelopes, place = page.envelopes, 0
        while place < len(envelopes):
            at_once = self._deliver_at_once(lane, page, place)
            if not at_once:
                envelope = envelopes[place]
                served = lane.of_services(page.services[envelope.graph_ids])
                await self._step(lane, served, envelope, page.small[place])
            place += at_once or 1

    def _deliver_at_once(self, lane: Lane, page: LanePage, place: int) -> int:
        """Hand out the envelopes from a place on, as far as nothing has to be waited for.

        Returns:
            How many that are.
        """
        smalls = page.small_from(place)
        if not smalls:
            return 0
        positions = [small.envelope.position for small in smalls]
        ways = page.ways[place : place + len(smalls)]
        owed: dict[Way, list[ServedRole]] = {}
        is_owed: dict[ServedRole, bool] = {}
        number = len(smalls)
        for way in set(ways):
            graph_ids, only_roles = way
            served = lane.of_services(page.services[graph_ids])
            owed[way] = [each for each in served if only_roles is None or each.role.id in only_roles]
            for recipient in owed[way]:
                cursor = self._ledger.cursor(recipient.role.id)
                is_owed[recipient], alike = (False, number) if cursor is None else cursor.alike(positions)
                number = min(number, alike)
        recipients = {way: [each for each in served if is_owed[each]] for way, served in owed.items()}
        recipients = {way: recipients[way] for way in dict.fromkeys(ways[:number])}
        if any(recipients.values()):
            number = self._deliverer.deliver_at_once(smalls[:number], ways[:number], recipients)
        for recipient in dict.fromkeys(each for whom in recipients.values() for each in whom):
            leading = {way for way, whom in recipients.items() if recipient in whom}
            found = [position for position, way in zip(positions[:number], ways, strict=False) if way in leading]
            self._ledger.owe_all(self._roles[recipient.role.id], found)
        if number:
            lane.position = positions[number - 1]
        return number

    async def _step(
        self, lane: Lane, served: Sequence[ServedRole], envelope: LogEnvelope, small: SmallEnvelope | None
    ) -> None:
        owed = [recipient for recipient in served if self._is_owed(recipient, envelope)]
        for recipient in owed:
            self._ledger.owe(recipient.role.id, envelope.position)
        while owed:
            left_out = await self._deliverer.deliver(envelope, owed, small, in_company=len(lane) > 1)
            # Who has gone on in a lane of its own gets it there; nobody else would bring it to those that are here.
            owed = [recipient for recipient in owed if recipient in left_out and recipient in lane]
        lane.position = envelope.position

    def _is_owed(self, recipient: ServedRole, envelope: LogEnvelope) -> bool:
        cursor = self._ledger.cursor(recipient.role.id)
        if cursor is None or cursor.is_settled(envelope.position):
            return False
        return cursor.owes(envelope.position) and envelope.is_for(recipient.role.id)
