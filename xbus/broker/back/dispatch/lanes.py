"""Lanes: readers of the log on behalf of consumer roles that stand at the same place.

Roles in one lane get an envelope in one run, so that its workers work once for all of them. A role that comes back, or
starts in the past, has a lane of its own until it has caught up.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger
from xbus.broker.back.recipients import RecipientProxy, RoleEvents
from xbus.broker.journal.log.reading import LogEnvelope


class Deliverer(Protocol):
    """What brings an envelope to recipients."""

    async def deliver(self, envelope: LogEnvelope, recipients: Iterable[RecipientProxy]) -> Collection[RecipientProxy]:
        """See to it that these recipients get an envelope; returns as soon as it is on its way, or set aside, with
        those that were left out."""


@dataclass(eq=False)
class _Lane:
    position: int
    """All envelopes up to here were dealt with."""
    recipients: list[RecipientProxy]
    """In the order in which they came."""
    joinable: bool = True
    """Whether it stands still between two envelopes, so that others at the same place may join."""
    task: "asyncio.Task[None] | None" = None


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

    def arrived(self, recipient: RecipientProxy) -> None:
        """Read on for a consumer from where its role stands."""
        if recipient.role.worker or self._lanes_of(recipient):
            return
        role = self._roles[recipient.role.id]
        cursor = role.cursor
        if cursor is None or role.breaker.is_tripped:
            return
        lane = self._joinable_at(cursor.position)
        if lane is None:
            self._begin(cursor.position, recipient, joinable=True)
        else:
            lane.recipients.append(recipient)

    def _begin(self, position: int, recipient: RecipientProxy, *, joinable: bool) -> None:
        lane = _Lane(position, [recipient], joinable)
        self._lanes.append(lane)
        lane.task = self._tasks.create_task(self._read(lane), name=f"lane from {position}")

    def left(self, recipient: RecipientProxy) -> None:
        """Read no longer for a recipient."""
        for lane in self._lanes_of(recipient):
            lane.recipients.remove(recipient)
            if not lane.recipients:
                self._end(lane)

    def split(self, recipient: RecipientProxy) -> None:
        """Let a recipient that holds others up go on at its own pace; at the end of the log it joins them again."""
        for lane in self._lanes_of(recipient):
            if len(lane.recipients) > 1:
                lane.recipients.remove(recipient)
                self._begin(lane.position, recipient, joinable=False)

    def stop(self) -> None:
        """Hand out no more envelopes."""
        for lane in list(self._lanes):
            self._end(lane)

    def _end(self, lane: _Lane) -> None:
        self._lanes.remove(lane)
        if lane.task is not None:
            lane.task.cancel()

    def _lanes_of(self, recipient: RecipientProxy) -> list[_Lane]:
        return [lane for lane in self._lanes if recipient in lane.recipients]

    def _joinable_at(self, position: int) -> _Lane | None:
        return next((lane for lane in self._lanes if lane.joinable and lane.position == position), None)

    async def _read(self, lane: _Lane) -> None:
        await asyncio.sleep(self._gather_seconds)
        while True:
            lane.joinable = False
            page = await self._log.page(lane.position, {recipient.role.service for recipient in lane.recipients})
            for envelope in page.envelopes:
                self._pass_gap(lane, envelope.position - 1)
                await self._step(lane, envelope)
            self._pass_gap(lane, page.upto)
            if lane.position < self._log.head:
                continue
            ahead = self._joinable_at(lane.position)
            if ahead is not None:
                ahead.recipients += lane.recipients
                for recipient in lane.recipients:
                    self._events.caught_up.publish(recipient)
                self._lanes.remove(lane)
                return
            lane.joinable = True
            await self._log.beyond(lane.position)

    def _pass_gap(self, lane: _Lane, last: int) -> None:
        """Pass a part of the log of which nobody here is owed anything, up to ``last``."""
        if last > lane.position:
            for recipient in lane.recipients:
                self._ledger.pass_gap(recipient.role.id, lane.position + 1, last)
            lane.position = last

    async def _step(self, lane: _Lane, envelope: LogEnvelope) -> None:
        owed = [recipient for recipient in list(lane.recipients) if await self._is_owed(recipient, envelope)]
        while owed:
            left_out = await self._deliverer.deliver(envelope, owed)
            # Who has gone on in a lane of its own gets it there; nobody else would bring it to those that are here.
            owed = [recipient for recipient in owed if recipient in left_out and recipient in lane.recipients]
        lane.position = envelope.position

    async def _is_owed(self, recipient: RecipientProxy, envelope: LogEnvelope) -> bool:
        cursor = self._ledger.cursor(recipient.role.id)
        if cursor is None or cursor.is_settled(envelope.position):
            return False
        services = [graph.consumer_services for graph in await self._log.graphs(envelope)]
        is_for_role = cursor.owes(envelope.position) and envelope.is_for(recipient.role.id)
        if is_for_role and any(recipient.role.service in found for found in services):
            return True
        self._ledger.pass_over(recipient.role.id, envelope.position)
        return False
