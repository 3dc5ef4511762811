"""Applies a decision of an administrator to the owed envelopes, one after the other."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, before_its_turn, settled
from xbus.broker.journal.log.backlog_changes import FIRST_GRAPH, BacklogChange, Concerned
from xbus.broker.journal.log.event_states import DROPPED, REROUTED
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import DeliveryRow
from xbus.states import DeliveryState

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
