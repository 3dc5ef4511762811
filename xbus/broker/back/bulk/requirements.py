"""Tells which outputs of bulk workers a delivery needs, and is the step before a run that asks for them."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias
from uuid import UUID

from xbus.broker.back.bulk.attempt import WantedOutput
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.log import LogReader
from xbus.broker.back.recipients import AnyOf, RecipientFailed, RecipientProxy, ServedRole, Slots
from xbus.broker.back.run import EventPlan, bulk_nodes
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes import DeliveryRow
from xbus.graph import Graph, Node
from xbus.states import AttemptState


class OutputRequirements:
    """Knows which outputs a run needs; for most events it sees at once that they need none.

    Args:
        attempts: the attempts that count.
        log: reads graphs.
        slots: know the workers that could be acquired.
        catalog: the present configuration.
        keeps_objects: whether the journal keeps large data outside of the database.
    """

    def __init__(
        self,
        attempts: OutputAttempts,
        log: LogReader,
        slots: Slots[RecipientProxy],
        catalog: Callable[[], Catalog],
        *,
        keeps_objects: bool,
    ) -> None:
        self._attempts = attempts
        self._log = log
        self._slots = slots
        self._catalog = catalog
        self._keeps_objects = keeps_objects
        self._bulk: set[RecipientProxy] = set()

    def joined(self, recipient: RecipientProxy) -> None:
        """Note that one more bulk worker may be registered."""
        if recipient.role.worker and recipient.abilities.bulk_items is not None:
            self._bulk.add(recipient)

    def parted(self, recipient: RecipientProxy) -> None:
        """Note that one bulk worker less may be registered."""
        self._bulk.discard(recipient)

    async def lacking(
        self, envelope: LogEnvelope, service: str, overlaid: Collection[UUID] = ()
    ) -> list[tuple[LogEvent, WantedOutput]]:
        """List the outputs that a consumer service needs of an envelope and that can be made now.

        Args:
            overlaid: the events that it is to get otherwise than they were sent: they take the ordinary path.
        """
        found: list[tuple[LogEvent, WantedOutput]] = []
        for event in envelope.events:
            if event.event_id not in overlaid and self._may_be_bulk(event):
                graph = await self._log.graph(event.graph_id)
                part = graph.leading_to({service})
                found += [(event, output) for output in self._lacking(event, graph) if output.node in part.nodes]
        return found

    def is_known(self, event: LogEvent) -> bool:
        """Check whether any output of an event is ready or in the making."""
        return event.event_id in self._attempts

    def _may_be_bulk(self, event: LogEvent) -> bool:
        """Check whether an event's graph is worth a look; for most events it is not."""
        is_large = any(recipient.abilities.takes_whole(event.items) for recipient in self._bulk)
        if not is_large and not self.is_known(event):
            return False
        event_type = self._catalog().event_type(event.type_name)
        return event_type is None or not event_type.immediate_reply

    def _lacking(self, event: LogEvent, graph: Graph) -> list[WantedOutput]:
        outputs = {
            name: WantedOutput(event.event_id, event.graph_id, name)
            for name in bulk_nodes(graph, lambda node: self._is_bulk(event, node))
        }
        return [
            output
            for name, output in outputs.items()
            if not self._attempts.is_ready(output)
            and all(self._attempts.is_ready(outputs[parent]) for parent in graph.parents(name))
        ]

    def _is_bulk(self, event: LogEvent, node: Node) -> bool:
        known = self._attempts.get(WantedOutput(event.event_id, event.graph_id, node.name))
        return known is not None or self._slots.is_present(worker_for(event, node.service))

    def plan(self, event: LogEvent, graph: Graph) -> EventPlan:
        """Plan the rest of a part of an event's graph, behind the outputs that are ready."""
        return self._behind(event, graph, AttemptState.READY)

    async def lost(self, attempt_id: UUID, cause: str) -> RecipientFailed:
        """Give up an output that was ready and lacks items; returns the failure of those who wanted it."""
        return await self._attempts.lost(attempt_id, cause)

    def services(self, event: LogEvent, graph: Graph) -> frozenset[str]:
        """Collect the worker services of a part of an event's graph that still have to work for it."""
        return self._behind(event, graph, AttemptState.READY, AttemptState.BUILDING).graph.worker_services

    def _behind(self, event: LogEvent, graph: Graph, *states: AttemptState) -> EventPlan:
        known = [attempt for attempt in self._attempts.of_event(event) if attempt.state in states]
        return EventPlan.behind(graph, {attempt.output.node: attempt.id for attempt in known}, self._appends)

    def _appends(self, node: Node) -> bool:
        """Check whether a node emits an output as it lies in the database, neither compressed nor in objects."""
        if node.emits is None or self._keeps_objects:
            return False
        event_types = self._catalog().event_types.values()
        return any(each.id == node.emits and not each.compress for each in event_types)


def worker_for(event: LogEvent, service: str) -> AnyOf:
    """Want any worker of a service that takes an event as a whole."""
    return AnyOf(service, lambda recipient: recipient.abilities.takes_whole(event.items))


MissingOutputs: TypeAlias = Sequence[tuple[LogEvent, WantedOutput]]


class BulkStep:
    """The view that the ordinary path has of bulk workers.

    Args:
        log: where it is read which items are brought otherwise than they were sent.
        requirements: know which outputs are to be ready before consumers are started.
        outputs: has bulk workers make them.
        waiting: the deliveries that wait for that.
    """

    def __init__(
        self, log: LogReader, requirements: OutputRequirements, outputs: BulkOutputs, waiting: WaitingDeliveries
    ) -> None:
        self._log = log
        self._requirements = requirements
        self._outputs = outputs
        self._waiting = waiting

    async def missing(
        self, envelope: LogEnvelope, recipient: ServedRole, *, on_its_own: bool = False
    ) -> MissingOutputs:
        """Find the outputs that a consumer needs first; most envelopes need none.

        Args:
            on_its_own: whether it gets the envelope by a row of its own, and thus with the corrections for its role.
        """
        overlays = await self._log.overlays(envelope, recipient.role.id if on_its_own else None)
        return await self._requirements.lacking(envelope, recipient.role.service, overlays.keys())

    def set_aside(
        self, envelope: LogEnvelope, missing: MissingOutputs, old: DeliveryRow | None, new: DeliveryRow
    ) -> None:
        """Have the missing outputs of a delivery made; it waits for them, and blocks no other.

        Args:
            old: its row; None where it has none yet.
            new: the same, or the row that it gets.
        """
        self._waiting.set_aside(envelope, old, new, [output for _, output in missing])
        self._outputs.make(envelope, missing)
