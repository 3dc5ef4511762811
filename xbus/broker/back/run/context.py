"""The surroundings of a run: graphs and items from the log, and workers that it acquires and releases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from xbus.broker.back.log import DeliveryNote, LogReader, OutputIncomplete, RunBatch
from xbus.broker.back.recipients import AnyOf, RecipientFailed, RecipientProxy, ServedRole, Slots, This
from xbus.broker.back.run.plan import EventPlan
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.overlays import EventOverlay
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.graph import Graph
from xbus.rpc.codec import unpack_items


async def overlaid(batches: AsyncIterator[RunBatch], overlay: EventOverlay) -> AsyncIterator[RunBatch]:
    """The items of an event, corrected and without those that are left out.

    Args:
        batches: as they are in the log.
        overlay: how the event differs from that.
    """
    touched = frozenset(overlay.corrected) | overlay.left_out
    async for batch in batches:
        places = range(batch.first_index, batch.first_index + batch.items)
        changed = batch if touched.isdisjoint(places) else _changed(batch, overlay)
        if changed.items:
            yield changed


def _changed(batch: RunBatch, overlay: EventOverlay) -> RunBatch:
    """Each item that is left keeps the index that its emitter gave it."""
    items = enumerate(unpack_items(batch.data, batch.items), batch.first_index)
    return RunBatch.of_single(
        ([index], overlay.corrected.get(index, item)) for index, item in items if index not in overlay.left_out
    )


T = TypeVar("T")


class ReadyOutputs(Protocol):
    """The outputs that bulk workers have made."""

    def plan(self, event: LogEvent, graph: Graph) -> EventPlan:
        """Give the rest of a part of an event's graph, behind the outputs that are ready."""

    async def lost(self, attempt_id: UUID, cause: str) -> RecipientFailed:
        """Give up an attempt that was ready and lacks items; returns what that means to those who want them."""


class BackRunContext:
    """See ``run.RunContext``.

    Args:
        log: where graphs and items are read.
        slots: who is free.
        outputs: what of an event's graph is made already.
        tasks: where it is waited for those that are not free again yet.
        window_bytes: see ``EventStream``.
        catalog: the configuration as it is now.
    """

    def __init__(
        self,
        log: LogReader,
        slots: Slots[RecipientProxy],
        outputs: ReadyOutputs,
        tasks: asyncio.TaskGroup,
        window_bytes: int,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._log = log
        self._outputs = outputs
        self._slots = slots
        self._tasks = tasks
        self._role_id: int | None = None
        self._overlays: Mapping[UUID, EventOverlay] = {}
        self.window_bytes = window_bytes
        self._catalog = catalog
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    def for_role(self, role_id: int) -> "BackRunContext":
        """The same for a run that brings one role an envelope on its own."""
        context = copy(self)
        context._role_id = role_id
        return context

    async def with_overlays(self, envelope: LogEnvelope) -> "BackRunContext":
        """The same, with what an envelope's items are replaced by as it is known now."""
        overlays = await self._log.overlays(envelope, self._role_id)
        if not overlays:
            return self
        context = copy(self)
        context._overlays = overlays
        return context

    def turn(self, envelope_id: bytes) -> asyncio.Lock:
        """Give the lock that whoever brings an envelope to workers holds meanwhile.

        Its ways to several roles may lead to the same worker, which would get its events mixed.
        """
        return self._turns.setdefault(envelope_id, asyncio.Lock())

    async def note(self, envelope: LogEnvelope, attempt: int) -> DeliveryNote:
        """The note that goes with an envelope."""
        return await self._log.note(envelope, attempt)

    async def graph(self, graph_id: int) -> Graph:
        """A version of an event type's graph."""
        return await self._log.graph(graph_id)

    def type_id(self, name: str) -> int | None:
        """Find the id of an event type by its name; None for a name of no type."""
        found = self._catalog().event_type(name)
        return None if found is None else found.id

    def plan(self, event: LogEvent, graph: Graph) -> EventPlan:
        """Plan a part of an event's graph: what is brought otherwise than it was sent takes the
        whole of it."""
        return EventPlan.whole(graph) if event.event_id in self._overlays else self._outputs.plan(event, graph)

    def output(self, attempt_id: UUID) -> AsyncIterator[RunBatch]:
        """Read the output that a bulk worker made of an event, in its order."""
        return self._unless_lost(attempt_id, self._log.output(attempt_id))

    def output_pages(self, attempt_id: UUID) -> AsyncIterator[OutputPage]:
        """The same, as pages whose items stay in the journal."""
        return self._unless_lost(attempt_id, self._log.output_pages(attempt_id))

    async def _unless_lost(self, attempt_id: UUID, portions: AsyncIterator[T]) -> AsyncIterator[T]:
        """Read an output.

        Raises:
            RecipientFailed: some of it is not there any more; it is to be made anew.
        """
        try:
            async for portion in portions:
                yield portion
        except OutputIncomplete as error:
            raise await self._outputs.lost(attempt_id, error.cause) from error

    def items(self, event: LogEvent) -> AsyncIterator[RunBatch]:
        """An event's items, in index order."""
        overlay = self._overlays.get(event.event_id)
        items = self._log.items(event)
        return items if overlay is None else overlaid(items, overlay)

    async def acquire(self, services: Sequence[str], engaged: Collection[RecipientProxy] = ()) -> list[RecipientProxy]:
        """A free worker of each service, all at once.

        Args:
            engaged: the workers that the run has begun with, which goes on with them though they are paused.

        Raises:
            Absent: nobody serves one of them.
        """
        return await self._slots.take([AnyOf(service, engaged=engaged) for service in services])

    def release(self, worker: RecipientProxy) -> None:
        """Give a hired worker back, as soon as it is ready for another event."""
        worker.readiness.end_work()
        self.spawn(self._free_when_ready(worker))

    async def acquire_slot(self, consumer: ServedRole) -> RecipientProxy:
        """Take a slot of an instance of a consumer, as soon as one is free.

        Raises:
            Absent: all have gone.
        """
        (instance,) = await self._slots.take([This(consumer)])
        return instance

    def release_slot(self, consumer: RecipientProxy, number: int = 1) -> None:
        """Give slots of a consumer back."""
        if consumer.owes:
            self.spawn(self._free(consumer, number))
        else:
            self._slots.free(consumer, number)

    async def _free_when_ready(self, worker: RecipientProxy) -> None:
        await worker.readiness.wait()
        await self._free(worker)

    async def _free(self, recipient: RecipientProxy, number: int = 1) -> None:
        """Free slots, though not before their recipient has answered everything: no attempt overlaps an earlier one."""
        await recipient.owes_nothing()
        self._slots.free(recipient, number)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside, as long as the broker goes on."""
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            # The broker is ending: nobody will take what this gives back.
            work.close()
