"""One event through its graph: items flow from the journal through the workers to the consumers of a run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from xbus import tracing
from xbus.broker.back.log import RunBatch
from xbus.broker.back.recipients import Absent, RecipientFailed, RecipientProxy, no_way
from xbus.broker.back.run.flow_control import CallWindow, Portion, StageInbox, together
from xbus.broker.back.run.plan import EventPlan, NodeWays, Unrouted, names_aside, names_behind
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes.bulk import OutputPage
from xbus.graph import Node
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


class OutputSource(Protocol):
    """The outputs of bulk workers in the journal; both raise ``RecipientFailed`` where items are missing."""

    def output(self, attempt_id: UUID) -> AsyncIterator[RunBatch]:
        """Read the output that a bulk worker made of an event, in its order."""

    def output_pages(self, attempt_id: UUID) -> AsyncIterator[OutputPage]:
        """The same, as pages whose items stay in the journal."""


@dataclass(frozen=True, slots=True)
class Members:
    """The recipients that take part in an event.

    Args:
        workers: for each worker service of the graph the recipient that serves it.
        consumers: for each consumer service of the graph its recipients.
        begin: called before the first call to each. It raises Absent for a consumer that was paused meanwhile.
    """

    workers: Mapping[str, RecipientProxy]
    consumers: Mapping[str, Sequence[RecipientProxy]]
    begin: Callable[[RecipientProxy], None] = lambda recipient: None


class EventStream:
    """An event on its way.

    Args:
        plan: the part of its graph that leads to the members and that they carry out.
        members: who serves it.
        window_bytes: how much is held before each recipient, and how much may be on its way to it.
        may_commit: whether this is all that there is to do before the commit, and there is one member only.
        type_id: finds the id of an event type by the name that a worker gives it.
    """

    def __init__(
        self,
        plan: EventPlan,
        members: Members,
        window_bytes: int,
        *,
        may_commit: bool,
        type_id: Callable[[str], int | None] = lambda name: None,
    ) -> None:
        self._type_id = type_id
        self._plan = plan
        self._graph = plan.graph
        self._members = members
        self._window_bytes = window_bytes
        self._may_commit = may_commit
        self._stages: dict[str, list[Stage]] = {}
        for service in self._children_first():
            self._stages[service] = self._make_stages(service)
        self._start = self._targets(plan.starts)

    def _children_first(self) -> list[str]:
        """The services in an order in which each comes behind those that get its answers."""
        ordered: dict[str, None] = {}

        def visit(service: str) -> None:
            for node in self._nodes(service):
                for child in node.children:
                    visit(self._graph.nodes[child].service)
            ordered.setdefault(service)

        for node in self._graph.nodes.values():
            visit(node.service)
        return list(ordered)

    def _nodes(self, service: str) -> list[Node]:
        return [node for node in self._graph.nodes.values() if node.service == service]

    def _make_stages(self, service: str) -> list[Stage]:
        nodes = self._nodes(service)
        ways = {node.name: self._ways_of(node) for node in nodes}
        recipients: Sequence[RecipientProxy] = (
            [self._members.workers[service]] if nodes[0].worker else self._members.consumers[service]
        )
        parents = self._parents(nodes)
        return [
            Stage(
                recipient,
                StageInbox(self._window_bytes, parents),
                self._window_bytes,
                ways,
                self._type_id,
                may_commit=self._may_commit,
                begin=self._members.begin,
            )
            for recipient in recipients
        ]

    def _ways_of(self, node: Node) -> NodeWays[tuple[str, Stage]]:
        aside = {type_id: self._targets(names) for type_id, names in names_aside(node).items()}
        return NodeWays(node, self._targets(names_behind(self._graph, node)), aside)

    def _parents(self, nodes: Sequence[Node]) -> int:
        """Count those that put into the inbox of these nodes: the stages above, and the journal."""
        above = {self._graph.nodes[parent].service for node in nodes for parent in self._graph.parents(node.name)}
        return len(above) + self._plan.sources([node.name for node in nodes])

    def _targets(self, names: Iterable[str]) -> Targets:
        return [(name, stage) for name in names for stage in self._stages[self._graph.nodes[name].service]]

    @property
    def committed(self) -> list[RecipientProxy]:
        """The recipients that have committed the envelope together with the event."""
        return [stage.recipient for stage in self._all_stages if stage.has_committed]

    def reply_of(self, consumer: RecipientProxy) -> Value:
        """Give a consumer's answer to the end of the event."""
        return next(stage.reply for stage in self._all_stages if stage.recipient is consumer)

    async def run(
        self,
        envelope_id: UUID,
        event: LogEvent,
        items: AsyncIterator[RunBatch],
        drop: Callable[[RecipientProxy, RecipientFailed | Absent], Collection[RecipientProxy]],
        release: Callable[[RecipientProxy], None],
        outputs: OutputSource | None = None,
    ) -> None:
        """Let the items flow until all recipients have ended the event.

        Args:
            items: those of the event, in index order.
            drop: told of a consumer that failed or gets nothing; says who leaves the run with it, itself included.
                Raises the failure where nobody is left.
            release: told of each worker as soon as it has ended the event, while consumers may still take their time.
            outputs: the items that bulk workers made; where the plan has any.

        Raises:
            RecipientFailed: a worker failed, or no consumer is left.
            Absent: no consumer is left.
        """
        consuming: dict[RecipientProxy, asyncio.Task[None] | None] = {}
        dismissed: set[RecipientProxy] = set()
        whole, items = await self._read_whole(items)

        async def feed(portions: AsyncIterator[Portion], targets: Targets) -> None:
            async for portion in portions:
                for node, stage in targets:
                    await stage.inbox.put(node, portion)
            await close_all(targets)

        async def work(stage: Stage) -> None:
            await stage.run(envelope_id, event)
            release(stage.recipient)

        async def consume(stage: Stage) -> None:
            consuming[stage.recipient] = asyncio.current_task()
            try:
                # A call that fails at once has others leave before they have begun.
                if stage.recipient not in dismissed:
                    await stage.run(envelope_id, event, whole)
                    return
            except (RecipientFailed, Absent) as failure:
                for leaver in drop(stage.recipient, failure):
                    if leaver is not stage.recipient:
                        dismissed.add(leaver)
                        if (task := consuming.get(leaver)) is not None:
                            task.cancel()
            except asyncio.CancelledError:
                if stage.recipient not in dismissed:
                    raise
            await stage.inbox.abandon()

        stages = self._all_stages
        await together(
            *(feed(*each) for each in self._feeds(None if whole is not None else items, outputs)),
            *(work(stage) if stage.recipient.role.worker else consume(stage) for stage in stages),
        )

    @property
    def _all_stages(self) -> list[Stage]:
        return [stage for stages in self._stages.values() for stage in stages]

    def _feeds(
        self, items: AsyncIterator[RunBatch] | None, outputs: OutputSource | None
    ) -> Iterator[tuple[AsyncIterator[Portion], Targets]]:
        """Say what comes from the journal to whom."""
        if self._start and items is not None:
            yield items, self._start
        if outputs is not None:
            for attempt_id, nodes in self._plan.fed.items():
                yield outputs.output(attempt_id), self._targets(nodes)
            for attempt_id, nodes in self._plan.appended.items():
                yield outputs.output_pages(attempt_id), self._targets(nodes)

    async def _read_whole(
        self, items: AsyncIterator[RunBatch]
    ) -> tuple[list[RunBatch] | None, AsyncIterator[RunBatch]]:
        """Read the items of a small event, where consumers alone take it in one call each.

        Returns:
            All items, or None; and the items, with those that were read in vain.
        """
        if self._plan.has_outputs or not all(stage.takes_whole for stage in self._all_stages):
            return None, items
        read: list[RunBatch] = []
        size = 0
        async for batch in items:
            read.append(batch)
            size += batch.size
            if size > min(WHOLE_BYTES, self._window_bytes):
                return None, _with_first(read, items)
        return read, items


async def _with_first(first: Sequence[RunBatch], others: AsyncIterator[RunBatch]) -> AsyncIterator[RunBatch]:
    for batch in first:
        yield batch
    async for batch in others:
        yield batch
