"""Carries out what administrators decided about envelopes that are owed: dropped, rerouted, or on their first graph.

The commands that decide know nothing of what is on its way to recipients, and the cursors in memory are ahead of those
in the journal. So they only write down what was decided; here it is done, each step in one go between two steps of the
event loop and in one transaction. Runs that are under way end as they began: a decision waits for them.
"""

import asyncio
import contextlib
import logging
from datetime import timedelta
from uuid import UUID

from xbus.broker.back.dispatch.change_step import ChangeStep, Ways
from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger
from xbus.broker.back.recipients import RoleEvents
from xbus.broker.journal.log.backlog_changes import BacklogChange, Concerned, is_open, read_concerned, read_decisions
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.writes import Decided
from xbus.clock import Clock

log = logging.getLogger(__name__)

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
