"""A run: one envelope to those of its recipients that can get it now, in two phases.

First all events go through all nodes, then ``end_envelope`` commits; whoever can't commit is told to forget.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Protocol

from xbus.broker.back.batch import Batch
from xbus.broker.back.failures import RecipientFailed
from xbus.broker.back.flow import together
from xbus.broker.back.recipient import Recipient
from xbus.broker.back.slots import Absent
from xbus.broker.back.stream import EventStream, Members
from xbus.broker.journal.reading import LogEnvelope, LogEvent
from xbus.graph import Graph


class Surroundings(Protocol):
    """What a run needs of the back."""

    @property
    def window_bytes(self) -> int:
        """How much is held before each recipient, and may be on its way to it."""

    async def graph(self, graph_id: int) -> Graph:
        """A version of an event type's graph."""

    def items(self, event: LogEvent) -> AsyncIterator[Batch]:
        """An event's items, in index order."""

    async def hire(self, services: Sequence[str]) -> Sequence[Recipient]:
        """A free worker of each service, all at once. Raises Absent."""

    def dismiss(self, worker: Recipient) -> None:
        """Give a hired worker back."""


class Run:
    """One attempt to deliver an envelope.

    Args:
        envelope: which one.
        consumers: the recipients that are to get it; their slots are taken.
        around: the back.
        again: whether some of them may have got it before: then each is told to forget it first.
        settled: told of each consumer at once when it has committed.
    """

    def __init__(
        self,
        envelope: LogEnvelope,
        consumers: Sequence[Recipient],
        around: Surroundings,
        *,
        again: bool,
        settled: Callable[[Recipient], None],
    ) -> None:
        self._envelope = envelope
        self._around = around
        self._again = again
        self._settled = settled
        self._consumers = {recipient.role.id: recipient for recipient in consumers}
        self._workers: dict[int, Recipient] = {}
        self._begun: dict[int, Recipient] = {}
        self.failures: dict[int, RecipientFailed | Absent] = {}
        """Why each consumer that has not committed could not, by role id."""

    async def carry_out(self) -> None:
        """Deliver, commit, and tell who could not to forget; cancelled, all that have not committed are told so."""
        try:
            if self._again:
                await self._forget_first(list(self._consumers.values()))
            for event in self._envelope.events:
                await self._carry_out_event(event)
            await self._commit()
        except (RecipientFailed, Absent) as failure:
            self.fail_all(failure)
        finally:
            for recipient in self._begun.values():
                recipient.stop_envelope_soon(self._envelope.envelope_id)

    def fail_all(self, failure: RecipientFailed | Absent) -> None:
        """Note why all that have not committed yet could not."""
        for role_id in self._consumers:
            self.failures.setdefault(role_id, failure)

    async def _forget_first(self, recipients: Sequence[Recipient]) -> None:
        await together(*(recipient.stop_envelope(self._envelope.envelope_id) for recipient in recipients))

    async def _carry_out_event(self, event: LogEvent) -> None:
        graph = await self._around.graph(event.graph_id)
        services = {recipient.role.service for recipient in self._consumers.values()}
        graph = graph.leading_to(services & graph.consumer_services)
        if not graph.nodes:
            return
        hired = await self._around.hire(sorted(graph.worker_services))
        try:
            await self._greet(hired)
            members = Members(
                workers={worker.role.service: worker for worker in hired},
                consumers=self._consumers_by_service(graph),
            )
            self._begun |= {recipient.role.id: recipient for group in members.consumers.values() for recipient in group}
            may_commit = event is self._envelope.events[-1] and not self._workers and len(self._consumers) == 1
            stream = EventStream(graph, members, self._around.window_bytes, may_commit=may_commit)
            await stream.run(self._envelope.envelope_id, event, self._around.items(event), self._drop)
            for consumer in stream.committed:
                self._note_committed(consumer)
        finally:
            for worker in hired:
                self._around.dismiss(worker)

    async def _greet(self, hired: Sequence[Recipient]) -> None:
        new = [worker for worker in hired if worker.role.id not in self._workers]
        if self._again:
            await self._forget_first(new)
        for worker in hired:
            worker.begin_work()
        self._workers |= {worker.role.id: worker for worker in new}
        self._begun |= {worker.role.id: worker for worker in new}

    def _consumers_by_service(self, graph: Graph) -> Mapping[str, Sequence[Recipient]]:
        return {
            service: [recipient for recipient in self._consumers.values() if recipient.role.service == service]
            for service in graph.consumer_services
        }

    def _drop(self, consumer: Recipient, failure: RecipientFailed) -> bool:
        """A consumer that is lost, silent or in trouble leaves the run; true where others go on without it."""
        self.failures[consumer.role.id] = failure
        del self._consumers[consumer.role.id]
        return bool(self._consumers)

    async def _commit(self) -> None:
        """Workers first: one that can't commit ends the attempt while no consumer has committed yet."""
        await together(*(self._end(worker) for worker in self._workers.values()))
        await together(*(self._end_consumer(consumer) for consumer in list(self._consumers.values())))

    async def _end(self, recipient: Recipient) -> None:
        await recipient.end_envelope(self._envelope.envelope_id)
        self._begun.pop(recipient.role.id, None)

    async def _end_consumer(self, consumer: Recipient) -> None:
        try:
            await self._end(consumer)
        except RecipientFailed as failure:
            self._drop(consumer, failure)
        else:
            self._note_committed(consumer)

    def _note_committed(self, consumer: Recipient) -> None:
        self._begun.pop(consumer.role.id, None)
        del self._consumers[consumer.role.id]
        self._settled(consumer)
