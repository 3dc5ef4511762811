"""A run: one envelope to those of its recipients that can get it now, in two phases.

First all events go through all nodes, then ``end_envelope`` commits; whoever can't commit is told to forget.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from xbus.broker.back.log import NOTHING_SAID, DeliveryNote, FirstWords, RunBatch
from xbus.broker.back.recipients import Absent, FailureClass, ItemError, RecipientFailed, RecipientProxy, This
from xbus.broker.back.run.flow_control import together
from xbus.broker.back.run.pipeline import EventStream, Members, OutputSource
from xbus.broker.back.run.plan import EventPlan
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.graph import Graph
from xbus.rpc.codec import Value


class RunContext(OutputSource, Protocol):
    """The surroundings that a run needs."""

    @property
    def window_bytes(self) -> int:
        """The bytes that wait before each recipient, and those that may be on their way to it."""

    async def with_overlays(self, envelope: LogEnvelope) -> "RunContext":
        """The same, with what an envelope's items are replaced by as it is known now."""

    async def note(self, envelope: LogEnvelope, attempt: int) -> DeliveryNote:
        """The note that goes with an envelope."""

    async def graph(self, graph_id: int) -> Graph:
        """A version of an event type's graph."""

    def type_id(self, name: str) -> int | None:
        """Find the id of an event type by its name; None for a name of no type."""

    def plan(self, event: LogEvent, graph: Graph) -> EventPlan:
        """Plan a part of an event's graph, without the outputs that are made already."""

    def items(self, event: LogEvent) -> AsyncIterator[RunBatch]:
        """An event's items, in index order."""

    async def acquire(
        self, services: Sequence[str], engaged: Collection[RecipientProxy] = ()
    ) -> Sequence[RecipientProxy]:
        """A free worker of each service, all at once; those engaged may be paused. Raises Absent."""

    def release(self, worker: RecipientProxy) -> None:
        """Give an acquired worker back."""


class Run:
    """One attempt to deliver an envelope.

    Args:
        envelope_id: of which one.
        consumers: the recipients that are to get it; their slots are taken.
        context: the back.
        again: whether some of them may have got it before: then each is told to forget it first.
        attempt: how often it is handed to them, with this time.
    """

    def __init__(
        self,
        envelope_id: UUID,
        consumers: Sequence[RecipientProxy],
        context: RunContext,
        *,
        again: bool,
        attempt: int = 1,
    ) -> None:
        self._envelope_id = envelope_id
        self._context = context
        self._again = again
        self._attempt = attempt
        self._words = NOTHING_SAID
        self._consumers = {recipient.role.id: recipient for recipient in consumers}
        self._workers: dict[RecipientProxy, None] = {}
        self._begun: dict[RecipientProxy, None] = {}
        self._ahead: set[UUID] = set()
        self._stops: list[asyncio.Future[Any]] = []
        self.failures: dict[int, RecipientFailed | Absent] = {}
        """Why each consumer that has not committed could not, by role id."""
        self.workers_done: list[RecipientProxy] = []
        """The workers that have committed."""

    async def ask(self, event: LogEvent, headers: bytes | None = None) -> Value:
        """Deliver one event ahead, to the only consumer; nothing is committed yet.

        Args:
            headers: those of its envelope, packed.

        Returns:
            The consumer's answer to its end.

        Raises:
            RecipientFailed: a worker or the consumer failed; what was begun is to be stopped.
            Absent: a worker is missing.
        """
        (consumer,) = self._consumers.values()
        self._words = FirstWords(None, headers)
        await self._forget_first_if_again()
        stream = await self._carry_out_event(event, may_commit=False)
        assert stream is not None, "the event's graph leads to the consumer"
        self._ahead.add(event.event_id)
        return stream.reply_of(consumer)

    async def carry_out(self, envelope: LogEnvelope, settled: Callable[[RecipientProxy], None]) -> None:
        """Deliver what was not delivered ahead, commit, and tell the consumers that could not to forget.

        When cancelled, it tells all consumers that have not committed to forget.

        Args:
            settled: told of each consumer at once when it has committed.
        """
        try:
            self._context = await self._context.with_overlays(envelope)
            self._words = FirstWords(await self._context.note(envelope, self._attempt), envelope.head.headers)
            await self._forget_first_if_again()
            for event in envelope.events:
                if event.event_id not in self._ahead:
                    await self._deliver(event, settled, is_last=event is envelope.events[-1])
            await self._commit(settled)
        except (RecipientFailed, Absent) as failure:
            self.fail_all(failure)
        finally:
            self.stop()

    def stop(self) -> None:
        """Tell all that have begun, and not committed, to forget the envelope."""
        self._stops += [recipient.stop_envelope_soon(self._envelope_id) for recipient in self._begun]
        self._begun.clear()

    @property
    def is_stopped(self) -> bool:
        """Check whether all that were told to forget it have answered, or their time is over."""
        return all(stop.done() for stop in self._stops)

    async def stopped(self) -> None:
        """Wait until it is."""
        await asyncio.wait(self._stops)

    def fail_all(self, failure: RecipientFailed | Absent) -> None:
        """Note why all that have not committed yet could not."""
        for role_id in self._consumers:
            self.failures.setdefault(role_id, failure)

    async def _forget_first_if_again(self) -> None:
        if self._again and not self._begun:
            await self._forget_first(list(self._consumers.values()))

    async def _forget_first(self, recipients: Sequence[RecipientProxy]) -> None:
        await together(*(recipient.stop_envelope(self._envelope_id) for recipient in recipients))

    async def _deliver(self, event: LogEvent, settled: Callable[[RecipientProxy], None], *, is_last: bool) -> None:
        # A consumer that has lost an earlier event meanwhile must not commit the last one alone: it would pass for all.
        is_all = is_last and not self._begun and not self._ahead
        may_commit = is_all and not self._workers and len(self._consumers) == 1
        stream = await self._carry_out_event(event, may_commit=may_commit)
        for consumer in stream.committed if stream is not None else ():
            self._note_committed(consumer, settled)

    async def _carry_out_event(self, event: LogEvent, *, may_commit: bool) -> EventStream | None:
        """Bring an event to those of the consumers that its graph leads to; None where there are none."""
        whole = await self._context.graph(event.graph_id)
        services = {recipient.role.service for recipient in self._consumers.values()}
        graph = whole.leading_to(services & whole.consumer_services)
        if not graph.nodes:
            return None
        if whole.is_cyclic and graph.is_cyclic:
            raise _circular(event)
        plan = self._context.plan(event, graph)
        workers = await self._acquire(event, sorted(plan.graph.worker_services))
        at_work = set(workers)

        def release(worker: RecipientProxy) -> None:
            at_work.discard(worker)
            self._context.release(worker)

        try:
            await self._greet(workers)
            members = Members(
                workers={worker.role.service: worker for worker in workers},
                consumers=self._consumers_by_service(graph),
                begin=self._begin_turn,
            )
            stream = EventStream(
                plan,
                members,
                self._context.window_bytes,
                may_commit=may_commit and not workers,
                type_id=self._context.type_id,
            )
            await stream.run(self._envelope_id, event, self._context.items(event), self._drop, release, self._context)
        finally:
            for worker in list(at_work):
                release(worker)
        return stream

    async def _acquire(self, event: LogEvent, services: Sequence[str]) -> Sequence[RecipientProxy]:
        """Workers for an event, though not for ever for those that this run itself keeps from being ready.

        One that says so at the end of the envelope only would have the run wait for itself, and hold its consumers.
        """
        unready = {
            worker: seconds
            for worker in self._workers
            if worker.role.service in services and (seconds := worker.ready_seconds(self._envelope_id)) is not None
        }
        try:
            async with asyncio.timeout(max(unready.values(), default=None)):
                return await self._context.acquire(services, self._workers)
        except TimeoutError:
            raise next(iter(unready)).failed_to_be_ready(event.event_id) from None

    async def _greet(self, workers: Sequence[RecipientProxy]) -> None:
        new = [worker for worker in workers if worker not in self._workers]
        if self._again:
            await self._forget_first(new)
        for worker in workers:
            worker.readiness.begin_work(self._envelope_id)
        self._workers |= dict.fromkeys(new)
        self._begin(new)

    def _begin(self, recipients: Iterable[RecipientProxy]) -> None:
        """Have what each gets from now on forgotten if it does not commit; the first call tells of the envelope."""
        for recipient in recipients:
            if recipient not in self._begun:
                recipient.accompany(self._envelope_id, self._words)
            self._begun[recipient] = None

    def _begin_turn(self, recipient: RecipientProxy) -> None:
        """Begin with a consumer whose turn comes, perhaps long after the workers before it had theirs.

        Raises:
            Absent: it was paused meanwhile. It gets the envelope later, as one that was away.
        """
        if recipient.role.pause is not None and recipient not in self._begun:
            raise Absent(This(recipient))
        self._begin([recipient])

    def _consumers_by_service(self, graph: Graph) -> Mapping[str, Sequence[RecipientProxy]]:
        return {
            service: [recipient for recipient in self._consumers.values() if recipient.role.service == service]
            for service in graph.consumer_services
        }

    def _drop(self, consumer: RecipientProxy, failure: RecipientFailed | Absent) -> Collection[RecipientProxy]:
        """A consumer that failed or was paused leaves the run.

        Where it refused for good, all leave whose failures are shared.

        Returns:
            Who leaves; the others go on.

        Raises:
            RecipientFailed: nobody would go on.
            Absent: the same.
        """
        leavers = [consumer] if consumer.role.id in self._consumers else []
        is_final = isinstance(failure, RecipientFailed) and failure.failure_class is FailureClass.PERMANENT
        if is_final and not consumer.role.own:
            leavers += [other for other in self._consumers.values() if other is not consumer and not other.role.own]
        for leaver in leavers:
            self._leave(leaver, failure)
        if not self._consumers:
            raise failure
        return leavers

    def _leave(self, consumer: RecipientProxy, failure: RecipientFailed | Absent) -> None:
        self.failures[consumer.role.id] = failure
        del self._consumers[consumer.role.id]

    async def _commit(self, settled: Callable[[RecipientProxy], None]) -> None:
        """Workers first: one that can't commit ends the attempt while no consumer has committed yet."""
        await together(*(self._end_worker(worker) for worker in self._workers))
        await together(*(self._end_consumer(consumer, settled) for consumer in list(self._consumers.values())))

    async def _end(self, recipient: RecipientProxy) -> None:
        await recipient.end_envelope(self._envelope_id)
        self._begun.pop(recipient, None)

    async def _end_worker(self, worker: RecipientProxy) -> None:
        await self._end(worker)
        self.workers_done.append(worker)

    async def _end_consumer(self, consumer: RecipientProxy, settled: Callable[[RecipientProxy], None]) -> None:
        try:
            await self._end(consumer)
        except RecipientFailed as failure:
            self._leave(consumer, failure)
        else:
            self._note_committed(consumer, settled)

    def _note_committed(self, consumer: RecipientProxy, settled: Callable[[RecipientProxy], None]) -> None:
        self._begun.pop(consumer, None)
        del self._consumers[consumer.role.id]
        settled(consumer)


def _circular(event: LogEvent) -> RecipientFailed:
    """Make the failure of an event whose graph leads back to itself, as somebody has edited the tables."""
    said = (
        f'the graph of event type "{event.type_name}" leads back to itself: '
        "correct it, then resume what is parked (xbus parked resume)"
    )
    return RecipientFailed(None, "deliver", None, FailureClass.PERMANENT, "graph_circular", [ItemError(None, said)])
