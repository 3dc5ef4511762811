"""A stage of an event's way: one recipient, what comes to it, and what it answers."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from xbus import tracing
from xbus.broker.back.log import RunBatch
from xbus.broker.back.recipients import RecipientFailed, RecipientProxy, no_way
from xbus.broker.back.run.flow_control import CallWindow, Portion, StageInbox, together
from xbus.broker.back.run.ways import NodeWays, Unrouted
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes import OutputPage
from xbus.rpc.codec import Value

WINDOW_CALLS = 16
"""How many calls a recipient that takes batches may owe an answer to. One that doesn't is asked one thing at a time."""


WHOLE_BYTES = 64 * 1024
"""An event up to this size goes to a recipient that takes batches in a single call."""


class Stage:
    """A recipient and what comes to it. A role that sits in several nodes is one stage: it sees an event once.

    Args:
        recipient: who is asked.
        inbox: what it is to get.
        window_bytes: how much may be on its way to it.
        ways: for each of its nodes the stages that get the answers, each with the node that they are for.
        type_id: finds the id of an event type by its name.
        may_commit: whether a call that hands over the whole event may commit the envelope as well.
        begin: called before the first call. It may raise Absent.
    """

    def __init__(
        self,
        recipient: RecipientProxy,
        inbox: StageInbox,
        window_bytes: int,
        ways: "Mapping[str, NodeWays[tuple[str, Stage]]]",
        type_id: Callable[[str], int | None],
        *,
        may_commit: bool,
        begin: Callable[[RecipientProxy], None],
    ) -> None:
        self.recipient = recipient
        self.inbox = inbox
        self.has_committed = False
        self.reply: Value = None
        self._ways = ways
        self._type_id = type_id
        self._may_commit = may_commit
        self._begin = begin
        self._window_bytes = window_bytes
        self._window = CallWindow(WINDOW_CALLS if recipient.abilities.batches else 1, window_bytes)
        self._calls: asyncio.Queue[_StageCall | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Sequence[RunBatch] | None]] = set()

    async def run(self, envelope_id: UUID, event: LogEvent, whole: Sequence[RunBatch] | None = None) -> None:
        """Hand all over, call behind call, and pass on what comes back in the same order.

        Args:
            whole: all items, where they are known and go in one call; None where they come to the inbox.

        Raises:
            RecipientFailed: the first failed call.
            Absent: the recipient gets nothing, as it was paused meanwhile.
        """
        if whole is not None:
            await self._run_whole(envelope_id, event, whole)
            return
        try:
            with tracing.step("node", envelope_id, self._about):
                await together(self._ask(envelope_id, event), self._hear(event))
        finally:
            for task in self._tasks:
                task.cancel()
            self.recipient.forget(event.event_id)

    async def _run_whole(self, envelope_id: UUID, event: LogEvent, batches: Sequence[RunBatch]) -> None:
        """Hand all over in one call, where nothing comes back: it takes no window, and a third of the tasks."""
        try:
            self._begin(self.recipient)
            with tracing.step("node", envelope_id, self._about):
                await self._take_whole(envelope_id, event, batches)
        except RecipientFailed as failure:
            failure.happened_at(tuple(self._ways), event.items)
            raise
        finally:
            self.recipient.forget(event.event_id)

    @property
    def _about(self) -> tracing.Attributes:
        return {"xbus.nodes": ", ".join(self._ways), "xbus.role": self.recipient.role.login}

    @property
    def takes_whole(self) -> bool:
        """Check whether it is a consumer in one node, which takes events in one call."""
        return self.recipient.abilities.batches and not self.recipient.role.worker and len(self._ways) == 1

    async def _ask(self, envelope_id: UUID, event: LogEvent) -> None:
        # Answers to a whole event are not told apart by node, which only matters to a worker that sits in several.
        takes_whole = self.recipient.abilities.batches and (len(self._ways) == 1 or not self.recipient.role.worker)
        whole = await self.inbox.whole(min(WHOLE_BYTES, self._window_bytes)) if takes_whole else None
        self._begin(self.recipient)
        if whole is not None:
            await self._call(None, 0, self._take_whole(envelope_id, event, whole))
        else:
            await self._ask_in_steps(envelope_id, event)
        self._calls.put_nowait(None)

    async def _take_whole(self, envelope_id: UUID, event: LogEvent, batches: Sequence[RunBatch]) -> Sequence[RunBatch]:
        end = await self.recipient.take_event(envelope_id, event, batches, commit=self._may_commit)
        self.has_committed = self._may_commit
        self.reply = end.reply
        return end.made

    async def _ask_in_steps(self, envelope_id: UUID, event: LogEvent) -> None:
        ids = (envelope_id, event.event_id)
        await self._call(None, 0, self.recipient.start_event(envelope_id, event))
        async for node, portion in self.inbox:
            await self._call(node, portion.size, self._send(*ids, portion))
        await self._call(None, 0, self._end(envelope_id, event))

    async def _send(self, envelope_id: UUID, event_id: UUID, portion: Portion) -> Sequence[RunBatch]:
        if isinstance(portion, OutputPage):
            await self.recipient.append_output(envelope_id, event_id, portion)
            return ()
        return await self.recipient.send(envelope_id, event_id, portion)

    async def _end(self, envelope_id: UUID, event: LogEvent) -> Sequence[RunBatch]:
        end = await self.recipient.end_event(envelope_id, event)
        self.reply = end.reply
        return end.made

    async def _call(self, node: str | None, size: int, call: Coroutine[Any, Any, Sequence[RunBatch] | None]) -> None:
        try:
            await self._window.enter(size)
        except BaseException:
            call.close()
            raise
        # A task makes its call at its first step, and tasks take theirs in the order in which they were made.
        task = asyncio.create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._answered)
        self._calls.put_nowait(_StageCall(node, size, task))

    def _answered(self, task: "asyncio.Task[Sequence[RunBatch] | None]") -> None:
        self._tasks.discard(task)
        # Behind the first failed call others may fail too, and nobody asks for their errors.
        if not task.cancelled():
            task.exception()

    async def _hear(self, event: LogEvent) -> None:
        while (call := await self._calls.get()) is not None:
            for batch in await self._answer(call, event.items):
                for node, stage in self._targets(call.node, batch, event):
                    await stage.inbox.put(node, batch)
            await self._window.leave(call.size)
        await close_all(target for ways in self._ways.values() for target in ways.all)

    async def _answer(self, call: "_StageCall", items: int) -> Sequence[RunBatch]:
        try:
            return await call.answer or ()
        except RecipientFailed as failure:
            failure.happened_at(tuple(self._ways) if call.node is None else (call.node,), items)
            raise

    def _targets(self, node: str | None, batch: RunBatch, event: LogEvent) -> "Iterable[tuple[str, Stage]]":
        """Answers to items go to the children of their node.

        Items that a worker kept until the end go to the children of all.

        Raises:
            RecipientFailed: the worker names an event type that its node does not emit.
        """
        nodes = tuple(self._ways) if node is None else (node,)
        type_id = None if batch.event_type is None else self._type_id(batch.event_type)
        try:
            return dict.fromkeys(target for name in nodes for target in self._ways[name].of(batch, type_id))
        except Unrouted as reason:
            failure = no_way(self.recipient.role.id, event.event_id, batch.indices, str(reason))
            failure.happened_at(nodes, event.items)
            raise failure from None


Targets: TypeAlias = Sequence[tuple[str, Stage]]
"""Where items go: stages, each with the name of the node that they are for."""


@dataclass(frozen=True, slots=True)
class _StageCall:
    node: str | None
    size: int
    answer: "asyncio.Task[Sequence[RunBatch] | None]"


async def close_all(targets: Iterable[tuple[str, Stage]]) -> None:
    """Close each stage's inbox once, however many of its nodes are among the targets."""
    for stage in dict.fromkeys(stage for _, stage in targets):
        await stage.inbox.close()
