"""Lanes: readers of the log on behalf of consumer roles that stand at the same place.

Roles in one lane get an envelope in one run, so that its workers work once for all of them. A role that comes back, or
starts in the past, has a lane of its own until it has caught up.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger
from xbus.broker.back.recipients import RecipientProxy, RoleEvents
from xbus.broker.journal.log.reading import LogEnvelope


class Deliverer(Protocol):
    """Brings an envelope to recipients."""

    async def deliver(
        self,
        envelope: LogEnvelope,
        recipients: Iterable[RecipientProxy],
        small: SmallEnvelope | None,
        *,
        in_company: bool,
    ) -> Collection[RecipientProxy]:
        """See to it that these recipients get an envelope; returns as soon as it is on its way, or set aside, with
        those that were left out.

        Args:
            small: the envelope with its items, where it is small and they were read.
            in_company: whether others wait while these take their time.
        """

    def may_bundle(self, envelope: LogEnvelope, recipient: RecipientProxy) -> bool:
        """Check whether a recipient may get envelopes of the same graphs as this one together, if they are small."""


IDLE_ROLES_PER_LOOK = 200
"""So many cursors of roles that are owed nothing are moved at once. More makes the write that follows longer."""


class _Lane:
    """A reader of the log.

    Args:
        position: all envelopes up to here were dealt with.
        joinable: whether it stands still between two envelopes, so that others at the same place may join.
    """

    def __init__(self, position: int, *, joinable: bool) -> None:
        self.position = position
        self.joinable = joinable
        self.task: asyncio.Task[None] | None = None
        self._of_service: defaultdict[str, dict[RecipientProxy, None]] = defaultdict(dict)
        self._turns: deque[RecipientProxy] = deque()

    def add(self, recipient: RecipientProxy) -> None:
        """Read for a recipient too."""
        self._of_service[recipient.role.service][recipient] = None
        self._turns.append(recipient)

    def remove(self, recipient: RecipientProxy) -> None:
        """Read no longer for a recipient."""
        of_service = self._of_service[recipient.role.service]
        of_service.pop(recipient, None)
        if not of_service:
            del self._of_service[recipient.role.service]
        self._turns.remove(recipient)

    @property
    def services(self) -> Collection[str]:
        """The services that those provide for whom it reads."""
        return self._of_service.keys()

    def __contains__(self, recipient: RecipientProxy) -> bool:
        return recipient in self._of_service.get(recipient.role.service, ())

    def __len__(self) -> int:
        return len(self._turns)

    def recipients(self) -> Sequence[RecipientProxy]:
        """Those that it reads for."""
        return list(self._turns)

    def of_services(self, services: Iterable[str]) -> list[RecipientProxy]:
        """Those of some services, in the order in which they came."""
        return [recipient for service in services for recipient in self._of_service.get(service, ())]

    def next_ones(self, most: int) -> list[RecipientProxy]:
        """So many recipients, others each time until all had their turn."""
        found = [self._turns[place] for place in range(min(most, len(self._turns)))]
        self._turns.rotate(-len(found))
        return found


class Lanes:
    """All lanes.

    Args:
        log: what they read.
        ledger: where the roles stand.
        deliverer: what they hand envelopes to.
        roles: those in trouble get nothing in their turn; ``arrived`` is called again when they do.
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
        roles: ConsumerRoles,
        tasks: asyncio.TaskGroup,
        events: RoleEvents,
        gather_seconds: float,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._deliverer = deliverer
        self._roles = roles
        self._tasks = tasks
        self._events = events
        self._gather_seconds = gather_seconds
        self._lanes: list[_Lane] = []
        self._lane_of: dict[RecipientProxy, _Lane] = {}

    def arrived(self, recipient: RecipientProxy) -> None:
        """Read on for a consumer from where its role stands."""
        if recipient.role.worker or recipient in self._lane_of:
            return
        role = self._roles[recipient.role.id]
        cursor = role.cursor
        if cursor is None or role.breaker.is_tripped:
            return
        lane = self._joinable_at(cursor.position)
        if lane is None:
            self._begin(cursor.position, recipient, joinable=True)
        else:
            self._join(lane, recipient)

    def _begin(self, position: int, recipient: RecipientProxy, *, joinable: bool) -> None:
        lane = _Lane(position, joinable=joinable)
        self._lanes.append(lane)
        self._join(lane, recipient)
        lane.task = self._tasks.create_task(self._read(lane), name=f"lane from {position}")

    def _join(self, lane: _Lane, recipient: RecipientProxy) -> None:
        lane.add(recipient)
        self._lane_of[recipient] = lane

    def left(self, recipient: RecipientProxy) -> None:
        """Read no longer for a recipient."""
        lane = self._lane_of.get(recipient)
        if lane is not None:
            self._leave(lane, recipient)
            if not len(lane):
                self._end(lane)

    def _leave(self, lane: _Lane, recipient: RecipientProxy) -> None:
        self._ledger.pass_to(recipient.role.id, lane.position)
        lane.remove(recipient)
        del self._lane_of[recipient]

    def split(self, recipient: RecipientProxy) -> None:
        """Let a recipient that holds others up go on at its own pace; at the end of the log it joins them again."""
        lane = self._lane_of.get(recipient)
        if lane is not None and len(lane) > 1:
            self._leave(lane, recipient)
            self._begin(lane.position, recipient, joinable=False)

    def stop(self) -> None:
        """Hand out no more envelopes."""
        for lane in list(self._lanes):
            for recipient in lane.recipients():
                self._leave(lane, recipient)
            self._end(lane)

    def _end(self, lane: _Lane) -> None:
        self._lanes.remove(lane)
        if lane.task is not None:
            lane.task.cancel()

    def _joinable_at(self, position: int) -> _Lane | None:
        return next((lane for lane in self._lanes if lane.joinable and lane.position == position), None)

    async def note_idle(self) -> None:
        """Have it written how far the roles have come that are owed nothing; of many, a part at each call."""
        for lane in self._lanes:
            for recipient in lane.next_ones(IDLE_ROLES_PER_LOOK):
                self._ledger.pass_to(recipient.role.id, lane.position)

    async def _read(self, lane: _Lane) -> None:
        await asyncio.sleep(self._gather_seconds)
        while True:
            lane.joinable = False
            page = await self._log.page(lane.position, lane.services)
            small = await self._log.small(await self._travelling_small(lane, page.envelopes))
            for envelope in page.envelopes:
                await self._step(lane, envelope, small.get(envelope.position))
            lane.position = max(lane.position, page.upto)
            if lane.position < self._log.head:
                continue
            ahead = self._joinable_at(lane.position)
            if ahead is not None:
                self._merge(lane, ahead)
                return
            lane.joinable = True
            await self._log.beyond(lane.position)

    def _merge(self, lane: _Lane, ahead: _Lane) -> None:
        for recipient in lane.recipients():
            self._join(ahead, recipient)
            self._events.caught_up.publish(recipient)
        self._lanes.remove(lane)

    async def _step(self, lane: _Lane, envelope: LogEnvelope, small: SmallEnvelope | None) -> None:
        owed = await self._owed(lane, envelope)
        for recipient in owed:
            self._ledger.owe(recipient.role.id, envelope.position)
        while owed:
            left_out = await self._deliverer.deliver(envelope, owed, small, in_company=len(lane) > 1)
            # Who has gone on in a lane of its own gets it there; nobody else would bring it to those that are here.
            owed = [recipient for recipient in owed if recipient in left_out and recipient in lane]
        lane.position = envelope.position

    async def _travelling_small(self, lane: _Lane, envelopes: Sequence[LogEnvelope]) -> list[LogEnvelope]:
        """Those whose graphs let them go in a bundle."""
        found: list[LogEnvelope] = []
        may_travel: dict[tuple[int, ...], bool] = {}
        for envelope in envelopes:
            graph_ids = tuple([event.graph_id for event in envelope.events])
            if graph_ids not in may_travel:
                served = await self._served(lane, envelope)
                may_travel[graph_ids] = any(self._deliverer.may_bundle(envelope, each) for each in served)
            if may_travel[graph_ids]:
                found.append(envelope)
        return found

    async def _owed(self, lane: _Lane, envelope: LogEnvelope) -> list[RecipientProxy]:
        """Those of a lane's recipients that are owed an envelope, and have not got it."""
        return [recipient for recipient in await self._served(lane, envelope) if self._is_owed(recipient, envelope)]

    async def _served(self, lane: _Lane, envelope: LogEnvelope) -> Collection[RecipientProxy]:
        """Those of a lane's recipients to which the graphs of an envelope lead."""
        found: dict[RecipientProxy, None] = {}
        for graph in await self._log.graphs(envelope):
            found |= dict.fromkeys(lane.of_services(graph.consumer_services))
        return found

    def _is_owed(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        cursor = self._ledger.cursor(recipient.role.id)
        if cursor is None or cursor.is_settled(envelope.position):
            return False
        return cursor.owes(envelope.position) and envelope.is_for(recipient.role.id)
