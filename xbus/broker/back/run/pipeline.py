"""One event through its graph: items flow from the journal through the workers to the consumers of a run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from xbus.broker.back.log import RunBatch
from xbus.broker.back.recipients import Absent, RecipientFailed, RecipientProxy
from xbus.broker.back.run.flow_control import Portion, StageInbox, together
from xbus.broker.back.run.plan import EventPlan
from xbus.broker.back.run.stage import WHOLE_BYTES, Stage, Targets, close_all
from xbus.broker.back.run.ways import NodeWays, names_aside, names_behind
from xbus.broker.journal.log.reading import LogEvent
from xbus.broker.journal.writes import OutputPage
from xbus.graph import Node
from xbus.rpc.codec import Value


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
