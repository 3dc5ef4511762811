"""A back that is nothing but what a run needs of it: graphs, items, and workers that are there or not."""

import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from tests.support.clock import StandingClock
from xbus.broker.back.log import DeliveryNote
from xbus.broker.back.log.batch import RunBatch, join_small
from xbus.broker.back.progress.consumer_role import ConsumerRoles
from xbus.broker.back.recipients.circuit_breaker import CircuitBreakers
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.slots import Absent, AnyOf
from xbus.broker.back.run.plan import EventPlan
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.log.segments import Segment
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.graph import Graph, Node
from xbus.rpc.codec import pack_items

Nodes = Mapping[str, Sequence[str]]
"""Each node with the nodes behind it; a node is named as its service, or ``node:service``."""


def graph_of(nodes: Nodes) -> Graph:
    """The graph of these nodes; one with others behind it is a worker's."""
    made = {}
    for name, children in nodes.items():
        node, _, service = name.partition(":")
        made[node] = Node(node, service or node, bool(children), tuple(child.partition(":")[0] for child in children))
    return Graph(made)


def consumer_roles() -> ConsumerRoles:
    """Roles that are never in trouble."""
    return ConsumerRoles(CircuitBreakers(StandingClock(), after=1_000_000, probe_interval=30), behind_after=10)


class Envelope:
    """A sealed envelope with its items, each event with its graph."""

    def __init__(self) -> None:
        self.id = uuid.uuid4()
        self.items: dict[uuid.UUID, list[list[bytes]]] = {}
        self.graphs: dict[int, Graph] = {}
        self._events: list[LogEvent] = []

    def add(self, nodes: Nodes, *segments: list[bytes]) -> uuid.UUID:
        """One more event, its items cut into these segments."""
        event_id = uuid.uuid4()
        graph_id = len(self.graphs) + 1
        self.graphs[graph_id] = graph_of(nodes)
        self.items[event_id] = list(segments)
        self._events.append(LogEvent(event_id.bytes, "flights", graph_id, sum(map(len, segments))))
        return event_id

    @property
    def in_log(self) -> LogEnvelope:
        return LogEnvelope(self.id.bytes, 1, tuple(self._events), tuple([event.graph_id for event in self._events]))


class Around:
    """The back around a run.

    Args:
        envelope: its only envelope.
        workers: who can be hired, by service.
    """

    def __init__(
        self, envelope: Envelope, workers: Sequence[RecipientProxy] = (), window_bytes: int = 8_000_000
    ) -> None:
        self._envelope = envelope
        self._workers = {worker.role.service: worker for worker in workers}
        self.window_bytes = window_bytes
        self.outputs: dict[str, uuid.UUID] = {}
        self.appends: set[str] = set()
        self.made: dict[uuid.UUID, list[RunBatch]] = {}
        self.pages: dict[uuid.UUID, list[OutputPage]] = {}
        self.hired: list[str] = []
        self.dismissed: list[str] = []

    async def with_overlays(self, envelope: LogEnvelope) -> "Around":
        return self

    async def note(self, envelope: LogEnvelope, attempt: int) -> DeliveryNote:
        return DeliveryNote.of(envelope, "emitter_1", attempt)

    async def graph(self, graph_id: int) -> Graph:
        return self._envelope.graphs[graph_id]

    def type_id(self, name: str) -> int | None:
        return None

    def plan(self, event: LogEvent, graph: Graph) -> EventPlan:
        return EventPlan.behind(graph, self.outputs, lambda node: node.name in self.appends)

    async def output(self, attempt_id: uuid.UUID) -> AsyncIterator[RunBatch]:
        for batch in self.made[attempt_id]:
            yield batch

    async def output_pages(self, attempt_id: uuid.UUID) -> AsyncIterator[OutputPage]:
        for page in self.pages[attempt_id]:
            yield page

    async def items(self, event: LogEvent) -> AsyncIterator[RunBatch]:
        index = 0
        for items in self._envelope.items[event.event_id]:
            for batch in join_small([Segment(index, len(items), pack_items(items))]):
                yield batch
            index += len(items)

    async def acquire(self, services: Sequence[str], engaged: Collection[RecipientProxy] = ()) -> list[RecipientProxy]:
        for service in services:
            if service not in self._workers:
                raise Absent(AnyOf(service))
        self.hired += services
        return [self._workers[service] for service in services]

    def release(self, worker: RecipientProxy) -> None:
        self.dismissed.append(worker.role.service)
