"""Deliveries that wait for outputs of bulk workers: they hold no consumer meanwhile, and let other envelopes pass."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import DeliveryLedger, RunResults, Serving, transitions
from xbus.broker.back.recipients import RecipientFailed, Registry, RoleEvents
from xbus.broker.journal.bulk.outputs import read_awaiting
from xbus.broker.journal.log.catalog import Catalog, RoleEntry
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow, IsolatedItem


@dataclass(frozen=True, slots=True)
class _AbsentConsumer:
    """A consumer whose recipient is not there: what waits for it is decided all the same."""

    role: RoleEntry


@dataclass(frozen=True, slots=True)
class _WaitingDelivery:
    row: DeliveryRow
    envelope: LogEnvelope
    outputs: frozenset[WantedOutput]


class WaitingDeliveries:
    """The deliveries in state ``waiting`` whose outputs are not ready, each until its row is moved.

    Args:
        ledger: moves their rows.
        registry: knows who is registered.
        results: decides about deliveries whose output can't be made.
        catalog: the present configuration.
        events: publish each role that has a row which may go on.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        registry: Registry,
        results: RunResults,
        catalog: Callable[[], Catalog],
        events: RoleEvents,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._results = results
        self._catalog = catalog
        self._events = events
        self._waiting: dict[tuple[int, UUID], _WaitingDelivery] = {}

    async def recover(self, log: LogReader, attempts: OutputAttempts) -> None:
        """Take up the deliveries that the last run of the broker left waiting.

        Args:
            log: where they are read.
            attempts: what is being made still.
        """
        rows = await log.read(read_awaiting)
        envelopes = {envelope.position: envelope for envelope in await log.at([row.position for row in rows])}
        for row in rows:
            role = self._catalog().roles.get(row.role_id)
            envelope = envelopes.get(row.position)
            if role is None or envelope is None:
                continue
            building = await _building(log, attempts, envelope, role.service)
            if building:
                self.take_up(envelope, row, building)
            else:
                self.let_go(envelope, row)

    def set_aside(
        self, envelope: LogEnvelope, old: DeliveryRow | None, new: DeliveryRow, outputs: Collection[WantedOutput]
    ) -> None:
        """Have a delivery wait.

        Args:
            old: its row; None where it has none yet.
            new: the same, or the row that it gets.
            outputs: what it waits for.
        """
        row = transitions.waiting_for_output(new, min(output.node for output in outputs))
        self._ledger.move(old, row)
        self.take_up(envelope, row, outputs)

    def take_up(self, envelope: LogEnvelope, row: DeliveryRow, outputs: Collection[WantedOutput]) -> None:
        """Note a delivery that waits already."""
        self._waiting[row.role_id, row.envelope_id] = _WaitingDelivery(row, envelope, frozenset(outputs))

    def note(self, row: DeliveryRow) -> None:
        """Take notice of a delivery's new row: it waits no longer, or is set aside anew."""
        self._waiting.pop((row.role_id, row.envelope_id), None)

    def retain(self, role_ids: Collection[int]) -> None:
        """Know only of these roles: nothing is owed to others any more."""
        for key in [key for key in self._waiting if key[0] not in role_ids]:
            del self._waiting[key]

    def is_wanted(self, output: WantedOutput) -> bool:
        """Check whether any delivery waits for an output."""
        return any(output in waiting.outputs for waiting in self._waiting.values())

    def wake(self, output: WantedOutput) -> None:
        """Let go on what waits for an output: it is ready, or others are to be asked."""
        for waiting in self._for(output):
            self.let_go(waiting.envelope, waiting.row)

    def let_go(self, envelope: LogEnvelope, row: DeliveryRow) -> None:
        """Let a waiting delivery go on; its next run finds out which outputs it still needs."""
        # Whether its role wants order may have changed while it waited.
        self._ledger.move(row, transitions.after_output(self._ledger.keyed(row, envelope)))
        self._events.rows_due.publish(row.role_id)

    async def failed(self, output: WantedOutput, failure: RecipientFailed) -> None:
        """Decide what becomes of what waits for an output that was not made."""
        found = self._for(output)
        if not found:
            return
        envelope = found[0].envelope
        consumers = self._consumers(found)
        why = dict.fromkeys((consumer.role.id for consumer in consumers), failure)
        bad_items = await self._results.bad_items(envelope, consumers, why)
        self._note_failed(output, found, consumers, why, bad_items)

    def _note_failed(
        self,
        output: WantedOutput,
        found: Sequence[_WaitingDelivery],
        consumers: Sequence[Serving],
        why: Mapping[int, RecipientFailed],
        bad_items: Mapping[int, Sequence[IsolatedItem]],
    ) -> None:
        """Decide in one go: a delivery that was moved meanwhile is left out, and none can be moved in between.

        Args:
            found: what waited for the output when it failed, at least one.
            consumers: whom they were for then.
        """
        envelope = found[0].envelope
        rows = {waiting.row.role_id: waiting.row for waiting in self._for(output) if waiting in found}
        consumers = [consumer for consumer in consumers if consumer.role.id in rows]
        attempts = {role_id: replace(row, attempts=row.attempts + 1) for role_id, row in rows.items()}
        for role_id in self._results.failed(envelope, consumers, attempts, why, bad_items):
            self._events.rows_due.publish(role_id)

    def _for(self, output: WantedOutput) -> list[_WaitingDelivery]:
        return [waiting for waiting in self._waiting.values() if output in waiting.outputs]

    def _consumers(self, found: Sequence[_WaitingDelivery]) -> list[Serving]:
        """List their consumers; the decision about a removed role's backlog settles the rows of that role."""
        roles = self._catalog().roles
        wanted = [waiting.row.role_id for waiting in found if waiting.row.role_id in roles]
        return [self._registry.get(role_id) or _AbsentConsumer(roles[role_id]) for role_id in wanted]


async def _building(
    log: LogReader, attempts: OutputAttempts, envelope: LogEnvelope, service: str
) -> list[WantedOutput]:
    """List the outputs in the making on an envelope's way to a service."""
    found: list[WantedOutput] = []
    for event in envelope.events:
        part = (await log.graph(event.graph_id)).leading_to({service})
        building = [attempt.output for attempt in attempts.of_event(event) if attempt.is_building]
        found += [output for output in building if output.node in part.nodes]
    return found
