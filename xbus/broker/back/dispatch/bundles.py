"""Bundles: small envelopes that wait for the same consumer travel in one call, and none waits for company."""

import asyncio
from collections.abc import Collection, Sequence

from xbus.broker.back.dispatch.bundle_queue import BundleQueue
from xbus.broker.back.dispatch.bundle_run import BundleRun
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.run_executor import finish_tasks
from xbus.broker.back.log import LogReader, SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, OpenReplies
from xbus.broker.back.recipients import Committed, ConsumerGathering, RecipientProxy
from xbus.broker.journal.log.reading import LogEnvelope, LogEvent


class Bundles:
    """Queues small envelopes for each consumer that can decide about them alone, and sends what waits together.

    Args:
        log: where graphs are known.
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        holds: what consumers hold open already.
        gathering: takes the consumers' slots.
        run: carries a bundle out.
        tasks: where they are sent.
    """

    def __init__(
        self,
        log: LogReader,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        holds: OpenReplies,
        gathering: ConsumerGathering,
        run: BundleRun,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._log = log
        self._roles = roles
        self._eligibility = eligibility
        self._holds = holds
        self._gathering = gathering
        self._run = run
        self._tasks = tasks
        self._queues: dict[RecipientProxy, BundleQueue] = {}
        self._sending: dict[RecipientProxy, asyncio.Task[None]] = {}
        self._is_finishing = False

    def may_take(self, envelope: LogEnvelope, recipient: RecipientProxy) -> bool:
        """Check whether a consumer may get an envelope in a bundle, if it is small.

        No worker may be on its way, and nobody may wait for a reply. What is corrected, ordered, or begun before goes
        alone.
        """
        return (
            recipient.abilities.bundles
            and not self._roles[recipient.role.id].keys.is_wanted
            and all(self._is_plain(event, recipient) for event in envelope.events)
            and not self._log.is_corrected(envelope)
            and not self._holds
            and not self._holds.is_doubtful(envelope.envelope_id, [recipient])
        )

    def _is_plain(self, event: LogEvent, recipient: RecipientProxy) -> bool:
        graph = self._log.known_graph(event.graph_id)
        wants_reply = event.type_name in recipient.abilities.immediate_reply
        return graph is not None and not wants_reply and recipient.role.service in graph.direct_services

    def takers(self, envelope: LogEnvelope, recipients: Collection[RecipientProxy]) -> list[RecipientProxy]:
        """Those that decide about a small envelope alone: the only one that has a vote, and those that have none."""
        votes = sum(not recipient.role.own for recipient in recipients)
        return [each for each in recipients if (each.role.own or votes == 1) and self.may_take(envelope, each)]

    async def add(self, small: SmallEnvelope, recipient: RecipientProxy, *, in_company: bool) -> None:
        """Have an envelope brought to a consumer, as soon as it has a free slot and together with what waits then.

        Returns as soon as there is room in the queue; what may not be brought any more then is left out, and so is a
        recipient that keeps others waiting.

        Args:
            in_company: whether others wait meanwhile.
        """
        queue = self._queues.setdefault(recipient, BundleQueue())
        if not queue.has_room:
            if not in_company:
                await queue.room()
            elif not await self._gathering.others_wait(recipient, queue.room()):
                return
        if not self._eligibility.in_turn(recipient, small.envelope):
            return
        self._roles[recipient.role.id].in_flight.begin(small.position)
        queue.add(small)
        if recipient not in self._sending:
            send = self._send(queue, recipient)
            self._sending[recipient] = self._tasks.create_task(send, name=f"bundles to {recipient.role.login}")

    async def emptied(self, recipient: RecipientProxy) -> None:
        """Wait until what was added for a consumer is on its way: what takes a run comes behind it."""
        queue = self._queues.get(recipient)
        if queue:
            await queue.emptied()

    async def _send(self, queue: BundleQueue, recipient: RecipientProxy) -> None:
        now = asyncio.get_running_loop().time
        try:
            while (
                queue
                and not self._is_finishing
                and await self._gathering.take([recipient], self._eligibility.is_served)
            ):
                bundle = self._as_they_were_read(recipient, queue.take())
                began = now()
                results = await self._run.carry_out(recipient, bundle)
                seconds = now() - began
                # Before the failures are noted, which may take long: another recipient may come in the meantime.
                queue.put_back(
                    [small for small, result in zip(bundle, results, strict=True) if result is Committed.NOT_BEGUN]
                )
                has_failed = await self._run.note_failed(recipient, bundle, results)
                queue.size.learn(results.count(Committed.YES), seconds, has_failed=has_failed)
                if queue:
                    # Whoever else waits for the slot, as a row that is due, is woken now and takes it first.
                    await asyncio.sleep(0)
        finally:
            self._leave(recipient, queue.take_all())
            del self._sending[recipient]
            if not self._eligibility.is_served(recipient):
                self._queues.pop(recipient, None)

    def _as_they_were_read(self, recipient: RecipientProxy, bundle: Sequence[SmallEnvelope]) -> list[SmallEnvelope]:
        """Set those aside that were corrected while they waited: they go alone, with the correction."""
        stale = [small for small in bundle if self._log.is_corrected(small.envelope)]
        if stale:
            self._run.set_aside(recipient, stale)
        return [small for small in bundle if small not in stale]

    def left(self, recipient: RecipientProxy) -> None:
        """Leave what waits for a recipient that gets nothing more in its turn, before another one of its role comes.

        Else: 1. The last bundle takes its time to be noted. 2. Another recipient comes, and its lane passes what waits
        here, as that counts as being brought. 3. The bundle is noted, and nobody brings what waited.
        """
        if recipient in self._queues:
            self._leave(recipient, self._queues[recipient].take_all())

    def _leave(self, recipient: RecipientProxy, bundle: Sequence[SmallEnvelope]) -> None:
        """Leave envelopes to the lane that reads on for the role when it is served again."""
        self._roles[recipient.role.id].in_flight.end_all(small.position for small in bundle)

    async def finish(self, seconds: float) -> None:
        """Send no other bundle, and wait for those that are under way; those that take longer are broken off."""
        self._is_finishing = True
        for recipient, queue in self._queues.items():
            self._leave(recipient, queue.take_all())
        await finish_tasks(self._sending.values(), seconds)
