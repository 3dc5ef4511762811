"""All that brings the log to the recipients, put together: started, recovered, and stopped in order."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from xbus.broker.back.bulk.attempt import OutputAttempt
from xbus.broker.back.bulk.attempts import OutputAttempts
from xbus.broker.back.bulk.job_sender import BulkJobSender
from xbus.broker.back.bulk.leases import Leases
from xbus.broker.back.bulk.outputs import BulkOutputs
from xbus.broker.back.bulk.reports import OutputReports
from xbus.broker.back.bulk.requirements import OutputRequirements
from xbus.broker.back.bulk.waiting import WaitingDeliveries
from xbus.broker.back.bulk.workers import BulkWorkerPool
from xbus.broker.back.dispatch.backlog_changes import BacklogChanges
from xbus.broker.back.dispatch.dispatcher import Dispatcher
from xbus.broker.back.dispatch.lanes import Lanes
from xbus.broker.back.dispatch.ordered_queue import OrderedQueue
from xbus.broker.back.dispatch.retry_queue import RetryQueue
from xbus.broker.back.dispatch.run_executor import RunExecutor
from xbus.broker.back.log.reader import LogReader
from xbus.broker.back.progress.bad_item_search import BadItems
from xbus.broker.back.progress.blocked_keys import BlockedKeys
from xbus.broker.back.progress.in_flight import InFlight
from xbus.broker.back.progress.ledger import DeliveryLedger
from xbus.broker.back.progress.open_replies import OpenReplies
from xbus.broker.back.progress.recovery import Recovery
from xbus.broker.back.progress.results import RunResults
from xbus.broker.back.progress.retry_policy import RetryPolicy
from xbus.broker.back.recipients.circuit_breaker import CircuitBreakers
from xbus.broker.back.recipients.gathering import ConsumerGathering
from xbus.broker.back.recipients.pace import Pace
from xbus.broker.back.recipients.probing import BreakerProbes
from xbus.broker.back.recipients.recipient import RecipientProxy
from xbus.broker.back.recipients.registry import Registry
from xbus.broker.back.recipients.slots import Slots
from xbus.broker.back.replies.service import ReplyService
from xbus.broker.back.run.context import BackRunContext
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.ordered import read_held_keys
from xbus.broker.journal.writes import DeliveryRow, FollowOrder
from xbus.clock import Clock
from xbus.errors import JournalError, JournalUnavailable
from xbus.rpc.bell import Bell

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How deliveries go.

    Args:
        window_bytes: how much may be on its way to a recipient.
        behind_after: see ``Pace``, in seconds.
        worker_grace: see ``Dispatcher``, in seconds.
        reply_hold: see ``ReplyService``, in seconds.
        retry: what counts for services that have no wishes of their own.
        trouble_after: see ``CircuitBreakers``.
        probe_interval: see ``CircuitBreakers``, in seconds.
        bulk_lease: for how many seconds a bulk worker may give no sign of life while it makes an output.
        register_timeout: for how many seconds a recipient may introduce itself.
    """

    window_bytes: int
    behind_after: float
    worker_grace: float
    reply_hold: float
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    trouble_after: int = 5
    probe_interval: float = 30.0
    bulk_lease: float = 30.0
    register_timeout: float = 10.0


class DeliveryAssembly:
    """The log, the ledger, and what reads the one and writes the other.

    Args:
        journal: what is delivered from, and where it is noted.
        bell: rings when something was sealed.
        registry: who is there.
        slots: who is free.
        clock: for what is stored, and for graces.
        tasks: where all that goes on runs.
        settings: how it goes.
        random: for delays that are not all alike.
        catalog: the configuration as it is now.
    """

    def __init__(
        self,
        journal: Journal,
        bell: Bell,
        registry: Registry,
        slots: Slots[RecipientProxy],
        clock: Clock,
        tasks: asyncio.TaskGroup,
        settings: DeliverySettings,
        random: Random,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._journal = journal
        self._tasks = tasks
        self._catalog = catalog

        # What is read, and what is written.
        self._log = LogReader(journal, bell)
        self.ledger = ledger = DeliveryLedger(journal, clock, {})

        # Who is served, and who rather not now.
        muster = ConsumerGathering(slots, Pace(settings.behind_after), clock)
        supplies = BackRunContext(self._log, slots, tasks, settings.window_bytes)
        holds = OpenReplies()
        self.troubles = CircuitBreakers(clock, after=settings.trouble_after, probe_interval=settings.probe_interval)
        self.probing = probing = BreakerProbes(self.troubles, registry, slots)

        # Runs, and what comes of them.
        self._order = order = BlockedKeys()
        outcomes = RunResults(ledger, registry, holds, probing, order, settings.retry, clock, random)
        self._recovery = Recovery(journal, self._log, ledger, order, outcomes)
        self._under_way = under_way = InFlight()
        isolating = BadItems(self._log, catalog)
        self._runs = RunExecutor(ledger, supplies, muster, outcomes, order, isolating, under_way, tasks)

        # Outputs of bulk workers, which are made before a run.
        self._awaiting = WaitingDeliveries(ledger, registry, outcomes, order, isolating, catalog)
        self._attempts = OutputAttempts(journal, self._log, clock, random, settings.bulk_lease)
        makers = BulkWorkerPool(slots, clock, settings.register_timeout)
        handing_over = BulkJobSender(self._attempts, self._log)
        self.outputs = BulkOutputs(self._attempts, self._awaiting, makers, handing_over, self._log, registry, tasks)
        self._leases = Leases(self._attempts, self._awaiting, self.outputs, clock)
        self.reports = OutputReports(journal, self._attempts, self.outputs, self._output_ready)
        needs = OutputRequirements(self._attempts, self._log, slots, catalog)

        # What begins runs: the log in its turn, rows that are due, immediate replies, and decisions of people.
        deliveries = Dispatcher(
            self._log,
            ledger,
            registry,
            supplies,
            muster,
            holds,
            outcomes,
            probing,
            order,
            self._runs,
            under_way,
            needs,
            self.outputs,
            self._awaiting,
            worker_grace=settings.worker_grace,
        )
        self.lanes = Lanes(self._log, ledger, deliveries, tasks)
        in_order = OrderedQueue(order, self._log, ledger, clock)
        self._rows = RetryQueue(self._log, ledger, deliveries, under_way, probing, in_order, clock, tasks)
        self._replies = ReplyService(
            journal,
            self._log,
            ledger,
            registry,
            supplies,
            deliveries,
            holds,
            clock,
            tasks,
            hold_seconds=settings.reply_hold,
            ring=bell.ring,
            expects=lambda: catalog().expects_replies,
        )
        self._decisions = BacklogChanges(self._log, ledger, under_way, clock, self._rows.wake)

        # Who tells whom.
        self._log.on_look = self._replies.wake
        ledger.on_move = self._moved
        supplies.course_of = needs.course
        supplies.on_output_lost = self._attempts.lost
        self.lanes.is_paused = probing.is_troubled
        probing.on_trouble = self.lanes.left
        probing.on_over = self._trouble_over
        self._runs.on_retry = self._rows.wake
        self._awaiting.on_retry = self._rows.wake
        muster.on_behind = self.lanes.split
        self.lanes.on_caught_up = muster.caught_up
        for watcher in (probing, needs, self.outputs, self.lanes, self._rows, self._replies):
            registry.watch(watcher)

        self._keeping: asyncio.Task[None] | None = None
        self._watching: list[asyncio.Task[None]] = []

    def _moved(self, row: DeliveryRow) -> None:
        self._order.note(row)
        self._awaiting.note(row)

    def _output_ready(self, attempt: OutputAttempt) -> None:
        self.probing.went_well(attempt.role_id)
        self._awaiting.wake(attempt.output)

    def _trouble_over(self, recipient: RecipientProxy) -> None:
        self.lanes.arrived(recipient)
        self._rows.wake_all()

    async def recover(self) -> None:
        """Learn what recipients may hold open since the last run of the broker.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        await self._replies.start()

    async def start(self) -> None:
        """Take up what the last run of the broker left undelivered, and begin to deliver.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        await self.read_cursors()
        await self._log.refresh()
        self._keeping = self._tasks.create_task(self.ledger.keep(), name="ledger")
        await self._follow_order()
        await self._recovery.carry_out(self._catalog().roles)
        await self._attempts.load()
        await self._awaiting.recover(self._log, self._attempts)
        self.outputs.spawn(self._leases.watch(), "leases of outputs")
        self._watching = [
            self._tasks.create_task(self._replies.watch(), name="replies of consumers"),
            self._tasks.create_task(self._log.follow(), name="log"),
            self._tasks.create_task(self._decisions.carry_out(), name="decisions"),
        ]

    async def read_cursors(self) -> None:
        """Take up the cursors of new roles, and the changed bounds of known ones.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        self.ledger.adopt(await self._journal.read(read_cursors))

    async def follow_configuration(self) -> None:
        """The same after a change of the configuration, as soon as the database can be read; and carry out what was
        decided with it."""
        self.ledger.adopt(await self._log.read(read_cursors))
        while True:
            try:
                await self._follow_order()
                break
            except JournalUnavailable as error:
                log.warning("order not followed: %s", error, extra={"action": "order_not_followed"})
                await asyncio.sleep(RETRY_SECONDS)
        self._awaiting.retain([role.id for role in self._catalog().roles.values() if not role.detached])
        self._decisions.wake()

    async def _follow_order(self) -> None:
        """Learn which roles want order now, and which of their ordering keys have rows."""
        ordered = [role.id for role in self._catalog().roles.values() if role.ordered and not role.worker]
        new = self._order.want(ordered)
        # What is noted before has no ordering keys yet, or has some still.
        await self.ledger.written()
        await self._journal.write(FollowOrder(ordered))
        self._order.add(await self._journal.read(read_held_keys, new))

    async def stop(self, seconds: float) -> None:
        """Hand out nothing more, and let the runs under way end for so long; those that don't come again."""
        self.lanes.stop()
        self._rows.stop()
        self.outputs.stop()
        for task in self._watching:
            task.cancel()
        self._replies.stop()
        await self._runs.finish(seconds)
        self.ledger.return_reserved(self._under_way.highest())
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            async with asyncio.timeout(seconds):
                await self.ledger.write()
        except (TimeoutError, JournalError) as error:
            # It only means that what it tells of comes again.
            log.error("the last progress is not written: %r", error, extra={"action": "progress_lost"})
