"""Carries out what administrators decided about envelopes that are owed: dropped, rerouted, or on their first graph.

The commands that decide know nothing of what is on its way to recipients, and the cursors in memory are ahead of those
in the journal. So they only write down what was decided; here it is done, each step in one go between two steps of the
event loop and in one transaction. Runs that are under way end as they began: a decision waits for them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, before_its_turn, settled
from xbus.broker.back.recipients import RoleEvents
from xbus.broker.journal.log.backlog_changes import (
    FIRST_GRAPH,
    BacklogChange,
    Concerned,
    is_open,
    read_concerned,
    read_decisions,
)
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.event_states import DROPPED, REROUTED
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import Decided, DeliveryRow
from xbus.clock import Clock
from xbus.states import DeliveryState

log = logging.getLogger(__name__)


Ways = Mapping[int, frozenset[str]]
"""The consumer services that versions of graphs lead to, by the id of the version."""


class ChangeStep:
    """One step of a decision: what it comes to for one envelope after the other, noted at once.

    No method is a coroutine: what is under way, where cursors stand and what is noted are one picture.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        roles: ConsumerRoles,
        decision: BacklogChange,
        concerned: Concerned,
        ways: Ways,
        moved: Collection[tuple[int, UUID]],
    ) -> None:
        self._ledger = ledger
        self._consumers = roles
        self._decision = decision
        self._rows = concerned.rows
        self._roles = concerned.roles
        self._ways = ways
        self._moved = moved
        self.regraphed: list[tuple[UUID, int]] = []
        self.let_go: list[tuple[int, UUID, str, str]] = []
        self.given: set[int] = set()

    def is_under_way(self, envelope: LogEnvelope) -> bool:
        """Check whether a run is bringing it to somebody, or what was read of it is out of date."""
        return any(
            envelope.position in self._consumers[role_id].in_flight.positions
            or (role_id, envelope.envelope_id) in self._moved
            for role_id in self._roles
        )

    def take(self, envelope: LogEnvelope) -> None:
        """Do for an envelope what was decided."""
        decision = self._decision
        if decision.role_id is not None:
            self._take_from_role(envelope, decision.role_id)
        elif decision.move == FIRST_GRAPH:
            self._regraph(envelope, self._concerned_events(envelope))
        else:
            self._take_from_services(envelope)

    def _concerned_events(self, envelope: LogEnvelope) -> list[LogEvent]:
        return [event for event in envelope.events if event.graph_id in self._decision.graphs]

    # -- a role was removed, or skips ------------------------------------------------------------------------------

    def _take_from_role(self, envelope: LogEnvelope, role_id: int) -> None:
        if not self._lacks(role_id, envelope) or self._is_for_a_person(role_id, envelope):
            return
        self._let_go(role_id, envelope)
        other = self._decision.to_role_id
        if other is not None and not self._is_or_was_owed(other, envelope) and not self._row(other, envelope):
            self._give(other, envelope)

    def _is_for_a_person(self, role_id: int, envelope: LogEnvelope) -> bool:
        """Check whether a role that stays, and only skips, has something parked on which a person decides."""
        row = self._row(role_id, envelope)
        return row is not None and row.state is DeliveryState.PARKED and self._roles[role_id].in_use

    # -- a graph was edited ----------------------------------------------------------------------------------------

    def _take_from_services(self, envelope: LogEnvelope) -> None:
        events = self._concerned_events(envelope)
        others = [event for event in envelope.events if event not in events]
        going = self._decision.services & self._led_to(events)
        lacking = [role_id for role_id in self._roles_of(going) if self._lacks(role_id, envelope)]
        is_rerouted = self._decision.move == REROUTED
        nobody_yet = any(service not in self._served() for service in going)
        if is_rerouted and (lacking or nobody_yet):
            self._regraph(envelope, events)
            others = [event._replace(graph_id=self._decision.graph_id or 0) for event in events] + others
        for role_id in lacking:
            # Whoever is owed the envelope for the sake of another event gets it whole.
            if self._roles[role_id].service not in self._led_to(others):
                self._let_go(role_id, envelope)

    def _regraph(self, envelope: LogEnvelope, events: Iterable[LogEvent]) -> None:
        """Have events take the new graph. Who is owed the envelope by that and has not had it gets it on its own."""
        graph_id = self._decision.graph_id
        assert graph_id is not None
        before = self._led_to(envelope.events)
        self.regraphed += [(event.event_id, graph_id) for event in events]
        for role_id in self._roles_of(self._ways[graph_id]):
            cursor = self._ledger.cursor(role_id)
            if cursor is None or not cursor.owes(envelope.position) or not envelope.is_for(role_id):
                continue
            row = self._row(role_id, envelope)
            if row is not None:
                self._bring_anew(row)
            elif self._roles[role_id].service not in before or not cursor.is_settled(envelope.position):
                self._give(role_id, envelope)

    def _bring_anew(self, row: DeliveryRow) -> None:
        """Send a delivery that waits for its next attempt the new way, also where it was read already."""
        if row.state is DeliveryState.WAITING:
            # The worker that it waits for may be none of the new way.
            self._ledger.move(row, replace(row, state=DeliveryState.RETRY, service=None))
        self._consumers[row.role_id].in_flight.outdate(row.position)
        self.given.add(row.role_id)

    # -- what both come to -----------------------------------------------------------------------------------------

    def _roles_of(self, services: Iterable[str]) -> list[int]:
        wanted = set(services)
        return [role_id for role_id, role in self._roles.items() if role.in_use and role.service in wanted]

    def _served(self) -> set[str]:
        """The services that have, or had, a role."""
        return {role.service for role in self._roles.values()}

    def _led_to(self, events: Iterable[LogEvent]) -> frozenset[str]:
        return frozenset[str]().union(*(self._ways[event.graph_id] for event in events))

    def _row(self, role_id: int, envelope: LogEnvelope) -> DeliveryRow | None:
        return self._rows.get((role_id, envelope.envelope_id))

    def _is_or_was_owed(self, role_id: int, envelope: LogEnvelope) -> bool:
        cursor = self._ledger.cursor(role_id)
        return cursor is not None and cursor.owes(envelope.position) and envelope.is_for(role_id)

    def _lacks(self, role_id: int, envelope: LogEnvelope) -> bool:
        """Check whether a role of a service that the envelope leads to has not had it."""
        if self._row(role_id, envelope) is not None:
            return True
        cursor = self._ledger.cursor(role_id)
        is_settled = cursor is None or cursor.is_settled(envelope.position)
        return not is_settled and self._is_or_was_owed(role_id, envelope)

    def _let_go(self, role_id: int, envelope: LogEnvelope) -> None:
        row = self._row(role_id, envelope)
        if row is None:
            self._ledger.settle(role_id, envelope.position)
        else:
            self._ledger.move(row, settled(row))
        self._consumers[role_id].in_flight.outdate(envelope.position)
        move = DROPPED if self._decision.move == DROPPED else REROUTED
        self.let_go.append((role_id, envelope.envelope_id, move, self._decision.reason))

    def _give(self, role_id: int, envelope: LogEnvelope) -> None:
        """Let a role have an envelope on its own, however far it has come."""
        key = (envelope.head.ordering_key or "") if self._roles[role_id].ordered else None
        code = FIRST_GRAPH if self._decision.move == FIRST_GRAPH else REROUTED
        row = before_its_turn(role_id, envelope, key, attempts=0)
        self._ledger.move(None, replace(row, code=code, cause=self._decision.reason))
        self.given.add(role_id)


LATE_SECONDS = 60.0
"""For how long a front may start events with a graph that was replaced: it reads the configuration every second."""


class BacklogChanges:
    """The changes that are decided and not yet carried out.

    Args:
        log: where it is read.
        ledger: where it is noted.
        roles: what runs are bringing to them.
        clock: for how long stragglers may turn up.
        events: told of each role for which there are new rows.
        look_seconds: how soon a decision that had to wait is looked at again.
    """

    def __init__(
        self,
        log: LogReader,
        ledger: DeliveryLedger,
        roles: ConsumerRoles,
        clock: Clock,
        events: RoleEvents,
        look_seconds: float,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._roles = roles
        self._clock = clock
        self._events = events
        self._look_seconds = look_seconds
        self._wake = asyncio.Event()
        self._wake.set()

    def wake(self) -> None:
        """Something may have been decided."""
        self._wake.set()

    async def carry_out(self) -> None:
        """For ever: carry out what is decided."""
        pending = True
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_seconds if pending else None):
                    await self._wake.wait()
            self._wake.clear()
            decisions = await self._log.read(read_decisions)
            pending = bool(decisions)
            for decision in decisions:
                await self._work(decision)
            self._ledger.unwatch()

    async def _work(self, decision: BacklogChange) -> None:
        """Carry a decision out as far as the log is known, and as nothing is under way."""
        position = decision.position
        while position < (end := self._end(decision)):
            moved = self._ledger.watch()
            await self._ledger.written()
            # Roles that were added by the same change as the graph are owed what takes it.
            self._ledger.adopt(await self._log.read(read_cursors))
            concerned = await self._log.read(read_concerned, decision.graphs, position, end)
            ways = await self._ways(decision, concerned)
            reached = self._step(decision, position, concerned, ways, moved)
            if reached == position:
                return
            position = reached
            await self._ledger.room()
        await self._finish(decision, position)

    def _end(self, decision: BacklogChange) -> int:
        """The last position that is known and that a decision is about."""
        head = self._log.head
        return head if decision.until is None else min(decision.until, head)

    async def _ways(self, decision: BacklogChange, concerned: Concerned) -> Ways:
        """The consumer services that each graph leads to."""
        graphs = {event.graph_id for envelope in concerned.envelopes for event in envelope.events}
        graphs |= set() if decision.graph_id is None else {decision.graph_id}
        return {graph_id: (await self._log.graph(graph_id)).consumer_services for graph_id in graphs}

    def _step(
        self, decision: BacklogChange, after: int, concerned: Concerned, ways: Ways, moved: set[tuple[int, UUID]]
    ) -> int:
        """Do it for some envelopes, up to one that is under way; returns how far it came."""
        upto = concerned.upto
        step = ChangeStep(self._ledger, self._roles, decision, concerned, ways, moved)
        for envelope in concerned.envelopes:
            if step.is_under_way(envelope):
                upto = envelope.position - 1
                break
            step.take(envelope)
        if decision.role_id is not None:
            # It needs nothing more of what lies behind it: neither must that be kept for its sake.
            self._ledger.pass_over(decision.role_id, after + 1, upto)
        self._ledger.decide(Decided(decision.id, upto, False, step.regraphed, step.let_go))
        for role_id in step.given:
            self._events.rows_due.publish(role_id)
        if step.regraphed or step.let_go:
            log.info(
                "what was owed is %s: %d events take another graph, %d deliveries are let go",
                *(decision.move, len(step.regraphed), len(step.let_go)),
                extra={"action": decision.move, "decision": decision.id, "position": upto},
            )
        return upto

    async def _finish(self, decision: BacklogChange, position: int) -> None:
        """Take the decision away, once nothing more can turn up that it is about."""
        if decision.until is None:
            is_young = self._clock.now() - decision.at < timedelta(seconds=LATE_SECONDS)
            if is_young or await self._log.read(is_open, decision.graphs) or position < self._log.head:
                return
        elif position < decision.until:
            return
        self._ledger.decide(Decided(decision.id, position, True))
        log.info("decision carried out: %s", decision.reason, extra={"action": "decided", "decision": decision.id})
