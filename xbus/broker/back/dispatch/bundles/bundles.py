"""Bundles: small envelopes that wait for the same consumer travel in one call, and none waits for company."""

import asyncio
from collections.abc import Collection, Sequence

from xbus.broker.back.dispatch.bundles.queue import BundleQueue
from xbus.broker.back.dispatch.bundles.run import BundleRun
from xbus.broker.back.dispatch.bundles.workers import BundleWorkers
from xbus.broker.back.dispatch.eligibility import Eligibility
from xbus.broker.back.dispatch.gathering import ConsumerGathering
from xbus.broker.back.dispatch.run_executor import finish_tasks
from xbus.broker.back.log import SmallEnvelope
from xbus.broker.back.progress import ConsumerRoles, OpenReplies
from xbus.broker.back.recipients import BundleStatus, RecipientProxy, ServedRole
from xbus.broker.journal.log.reading import LogEnvelope


class Bundles:
    """Queues small envelopes for each consumer that can decide about them alone, and sends what waits together.

    Args:
        roles: which of them want order, and what is being brought to them.
        eligibility: who may get an envelope now.
        open_replies: what consumers hold open already.
        gathering: takes the consumers' slots.
        workers: say which envelopes they can transform in a bundle.
        run: carries a bundle out.
        tasks: where they are sent.
    """

    def __init__(
        self,
        roles: ConsumerRoles,
        eligibility: Eligibility,
        open_replies: OpenReplies,
        gathering: ConsumerGathering,
        workers: BundleWorkers,
        run: BundleRun,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._roles = roles
        self._eligibility = eligibility
        self._open_replies = open_replies
        self._gathering = gathering
        self._workers = workers
        self._run = run
        self._tasks = tasks
        self._queues: dict[ServedRole, BundleQueue] = {}
        self._sending: dict[ServedRole, set[asyncio.Task[None]]] = {}
        self._is_finishing = False

    @property
    def waiting_bytes(self) -> int:
        """The bytes of all items that wait here."""
        return sum(queue.waiting_bytes for queue in self._queues.values())

    def may_take(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        """Check whether a consumer may get envelopes of the same graphs as this one in a bundle, if they are small.

        Nobody may wait for a reply.
        """
        return (
            recipient.abilities.bundles
            and not any(event.type_name in recipient.abilities.immediate_reply for event in envelope.events)
            and self._workers.way(envelope, recipient.role.service) is not None
        )

    def takers(self, envelope: LogEnvelope, recipients: Collection[ServedRole]) -> list[ServedRole]:
        """Those that decide about a small envelope alone: the only one that has a vote, and those that have none.

        What was corrected or begun before goes alone, and what waits for one of its key gets a row. Several consumers
        behind workers share a run, so that its workers work once for all of them.
        """
        if self._open_replies or self._workers.is_corrected(envelope):
            return []
        votes = sum(not recipient.role.own for recipient in recipients)
        deciding = [each for each in recipients if each.role.own or votes == 1]
        if len(recipients) > 1:
            behind_workers = [each for each in recipients if self._workers.way(envelope, each.role.service) != ()]
            deciding = [each for each in deciding if each not in behind_workers or len(behind_workers) == 1]
        return [each for each in deciding if self.may_take(envelope, each) and self._is_new(envelope, each)]

    def _is_new(self, envelope: LogEnvelope, recipient: ServedRole) -> bool:
        is_blocked = self._roles[recipient.role.id].keys.blocks(envelope)
        return not is_blocked and not self._open_replies.may_be_open(envelope.envelope_id, [recipient])

    async def add(self, small: SmallEnvelope, recipient: ServedRole, *, in_company: bool) -> None:
        """Have an envelope brought to a consumer, as soon as it has a free slot and together with what waits then.

        Returns as soon as there is room in the queue; what may not be brought any more then is left out, and so is a
        recipient that keeps others waiting.

        Args:
            in_company: whether others wait meanwhile.
        """
        waiting = self._queues.get(recipient)
        if waiting is not None and not waiting.has_room:
            if not in_company:
                await waiting.room()
            elif not await self._gathering.others_wait(recipient, waiting.room()):
                return
        if self._eligibility.is_blocked(recipient, small.envelope):
            self._run.block(recipient, [small])
        if not self._eligibility.in_turn(recipient, small.envelope):
            return
        role = self._roles[recipient.role.id]
        role.in_flight.begin(small.position)
        queue = self._queues.setdefault(recipient, BundleQueue())
        queue.add(small)
        sending = self._sending.setdefault(recipient, set())
        if len(sending) < len(recipient.instances):
            task = self._tasks.create_task(self._send(queue, recipient), name=f"bundles to {recipient.role.login}")
            sending.add(task)
            role.bring_by(task)

    async def emptied(self, recipient: ServedRole, *, in_company: bool) -> bool:
        """Wait until what was added for a consumer is on its way: what takes a run comes behind it.

        For a role that wants order wait until it is known what has become of it: a run must not overtake what failed.

        Args:
            in_company: whether others wait meanwhile.

        Returns:
            Whether it is; else the recipient kept the others waiting, and goes on at its own pace.
        """
        if in_company and (self._queues.get(recipient) or self._sending.get(recipient)):
            return await self._gathering.others_wait(recipient, self._emptied(recipient))
        await self._emptied(recipient)
        return True

    async def _emptied(self, recipient: ServedRole) -> None:
        queue = self._queues.get(recipient)
        if queue:
            await queue.emptied()
        if self._sending.get(recipient) and self._roles[recipient.role.id].keys.is_wanted:
            await asyncio.wait(self._sending[recipient])

    async def _send(self, queue: BundleQueue, recipient: ServedRole) -> None:
        """Send bundles to one instance after another; so many of these tasks as instances are at it."""
        try:
            while queue and not self._is_finishing:
                await self._key_free(queue, recipient)
                taken = await self._gathering.take([recipient], self._eligibility.is_served)
                if not taken:
                    return
                await self._send_one(queue, recipient, taken[0])
                if queue:
                    # Whoever else waits for the slot, as a row that is due, is woken now and takes it first.
                    await asyncio.sleep(0)
        finally:
            self._end_sending(queue, recipient)

    async def _send_one(self, queue: BundleQueue, recipient: ServedRole, instance: RecipientProxy) -> None:
        """Send what may go now to an instance whose slot is taken."""
        now = asyncio.get_running_loop().time
        role = self._roles[recipient.role.id]
        bundle = self._free_to_go(recipient, queue.take(role.keys.key, role.keys_in_hand, len(recipient.instances)))
        for small in bundle:
            role.keys_in_hand.begin(small.position, role.keys.key(small.envelope))
        try:
            began = now()
            results = await self._run.carry_out(instance, bundle)
            seconds = now() - began
            # Before the failures are noted, which may take long: another recipient may come in the meantime.
            self._put_back(
                recipient,
                queue,
                [small for small, result in zip(bundle, results, strict=True) if result is BundleStatus.NOT_BEGUN],
            )
            has_failed = await self._run.note_failed(instance, bundle, results)
        finally:
            role.keys_in_hand.end([small.position for small in bundle])
        if bundle:
            queue.size.learn(results.count(BundleStatus.COMMITTED), seconds, has_failed=has_failed)

    async def _key_free(self, queue: BundleQueue, recipient: ServedRole) -> None:
        """Wait until an envelope that waits is of no ordering key that another instance has in hand."""
        role = self._roles[recipient.role.id]
        if role.keys.is_wanted:
            await role.keys_in_hand.any_free(queue.keys(role.keys.key))

    def _end_sending(self, queue: BundleQueue, recipient: ServedRole) -> None:
        """Leave what waits, unless another task sends it to another instance."""
        task = asyncio.current_task()
        sending = self._sending[recipient]
        if task is not None:
            sending.discard(task)
        if sending and self._eligibility.is_served(recipient):
            return
        self._leave(recipient, queue.take_all())
        if not sending:
            del self._sending[recipient]
            if not self._eligibility.is_served(recipient):
                self._queues.pop(recipient, None)

    def _free_to_go(self, recipient: ServedRole, bundle: Sequence[SmallEnvelope]) -> list[SmallEnvelope]:
        """Block those of which one of their key has failed while they waited."""
        keys = self._roles[recipient.role.id].keys
        blocked = [small for small in bundle if keys.blocks(small.envelope)]
        self._run.block(recipient, blocked)
        return [small for small in bundle if small not in blocked]

    def _put_back(self, recipient: ServedRole, queue: BundleQueue, bundle: Sequence[SmallEnvelope]) -> None:
        """Have envelopes go next that were not begun; where their recipient left meanwhile, its role gets them.

        The lane of the next recipient may have passed them, as they counted as being brought: then they get rows.
        """
        if self._eligibility.is_served(recipient):
            queue.put_back(bundle)
        elif self._roles[recipient.role.id].lane is None:
            self._leave(recipient, bundle)
        else:
            self._run.set_aside(recipient, bundle)

    def left(self, recipient: ServedRole) -> None:
        """Leave what waits for a recipient that gets nothing more in its turn, before another one of its role comes.

        Else: 1. The last bundle takes its time to be noted. 2. Another recipient comes, and its lane passes what waits
        here, as that counts as being brought. 3. The bundle is noted, and nobody brings what waited.
        """
        if recipient in self._queues:
            self._leave(recipient, self._queues[recipient].take_all())

    def gone(self, recipient: ServedRole) -> None:
        """Keep no queue of a recipient that is gone; a task that still sends its bundles sees to that itself."""
        if recipient not in self._sending:
            self._queues.pop(recipient, None)

    def _leave(self, recipient: ServedRole, bundle: Sequence[SmallEnvelope]) -> None:
        """Leave envelopes to the lane that reads on for the role when it is served again."""
        self._roles[recipient.role.id].in_flight.end_all(small.position for small in bundle)

    async def finish(self, seconds: float) -> None:
        """Send no other bundle, and wait for those that are under way; those that take longer are broken off."""
        self._is_finishing = True
        for recipient, queue in self._queues.items():
            self._leave(recipient, queue.take_all())
        await finish_tasks([task for tasks in self._sending.values() for task in tasks], seconds)
