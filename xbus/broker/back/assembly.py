"""The parts of the back, put together to bring the log to the recipients: started, recovered, and stopped in order."""

import asyncio
import logging
from collections.abc import Callable

from xbus.broker.back.bulk import (
    BulkJobSender,
    BulkOutputs,
    BulkStep,
    BulkWorkerPool,
    Leases,
    OutputAttempt,
    OutputAttempts,
    OutputReports,
    OutputRequirements,
    WaitingDeliveries,
)
from xbus.broker.back.dispatch import (
    BacklogChanges,
    BundleCalls,
    BundleWorkers,
    ConsumerGathering,
    Dispatcher,
    DueRows,
    Eligibility,
    GroupDelivery,
    GroupOutcomes,
    Lanes,
    OrderedQueue,
    PageDelivery,
    RetryQueue,
    RunExecutor,
    RunLauncher,
    WorkerAvailability,
)
from xbus.broker.back.log import LogReader, LogSlices
from xbus.broker.back.monitoring import BackInsight, DeliveryFigures
from xbus.broker.back.progress import (
    BadItems,
    ConsumerRoles,
    DeliveryLedger,
    OpenReplies,
    Recovery,
    RetryPolicy,
    RetrySchedule,
    RunResults,
)
from xbus.broker.back.recipients import (
    BreakerProbes,
    CircuitBreakers,
    RecipientProxy,
    Registry,
    RoleEvents,
    Slots,
)
from xbus.broker.back.replies import EarlyDelivery, LeftBehind, ReplyRecords, ReplyService
from xbus.broker.back.run import BackRunContext
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.catalog import Catalog
from xbus.broker.journal.log.deliveries import read_cursors
from xbus.broker.journal.log.reading import read_held_keys
from xbus.broker.journal.writes import FollowOrder
from xbus.config import BackSettings
from xbus.errors import JournalError, JournalUnavailable
from xbus.periodic import every
from xbus.rpc.bell import Bell

log = logging.getLogger(__name__)


class DeliveryAssembly:
    """The log, the ledger, and what reads the one and writes the other.

    Args:
        journal: has the envelopes to deliver, and takes note of their deliveries.
        bell: rings when something was sealed.
        runtime: its time, tasks and chance.
        settings: how it goes.
        catalog: the configuration as it is now.
    """

    def __init__(
        self,
        journal: Journal,
        bell: Bell,
        runtime: Runtime,
        settings: BackSettings,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._journal = journal
        self._runtime = runtime
        self._tasks = runtime.tasks
        self._settings = settings
        self._catalog = catalog
        self._keeping: asyncio.Task[None] | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._graph_edits = catalog().graph_edits
        self._unread_order: set[int] = set()
        """The roles that have come to want order, and whose ordering keys could not be read yet."""

        # Readers and writers.
        self.events = RoleEvents()
        self._log = LogReader(journal, bell)
        self.archived = self._log.archived
        self.slices = LogSlices(self._log)
        self.breakers = CircuitBreakers(
            runtime.clock, after=settings.trouble_after, probe_interval=settings.probe_interval
        )
        self._roles = ConsumerRoles(self.breakers, settings.behind_after)
        self.ledger = DeliveryLedger(journal, runtime.clock, self._roles, self.events, runtime.intervals.retry)
        self._recovery = Recovery(journal, self._log, self.ledger, self._roles)

        # The recipients to serve, and those to spare now.
        self._slots: Slots[RecipientProxy] = Slots()
        self.registry = Registry(self._slots, runtime.clock, self.events)
        self.probing = BreakerProbes(self.breakers, self.registry, self._slots, self.events)

        # What comes of runs.
        self._records = ReplyRecords(journal, self.ledger, self._tasks, bell.ring)
        self._open_replies = OpenReplies(self._records.note_given)
        schedule = RetrySchedule(RetryPolicy.of(settings), self.registry, runtime.clock, runtime.random)
        bad_items = BadItems(self._log, catalog)
        self._results = RunResults(self.ledger, self._open_replies, self.probing, schedule, bad_items, catalog)

        self._build_bulk()
        self._build_dispatch()
        self._build_replies()
        self.insight = BackInsight(
            self.registry,
            self._slots,
            self._roles,
            self.breakers,
            catalog,
            runtime.clock,
            settings.worker_grace,
        )
        self._subscribe(self.events)

    def _build_bulk(self) -> None:
        """Build what makes outputs of bulk workers, before a run."""
        clock, events = self._runtime.clock, self.events
        self._attempts = OutputAttempts(
            self._journal, self._log, clock, self._runtime.random, self._settings.bulk_lease
        )
        self._requirements = OutputRequirements(
            self._attempts, self._log, self._slots, self._catalog, keeps_objects=self._journal.keeps_objects
        )
        self._waiting = WaitingDeliveries(self.ledger, self.registry, self._results, self._catalog, events)
        workers = BulkWorkerPool(self._slots, clock, self._settings.register_timeout)
        jobs = BulkJobSender(self._attempts, self._log)
        self.outputs = BulkOutputs(self._attempts, self._waiting, workers, jobs, self._log, self.registry, self._tasks)
        self._leases = Leases(self._attempts, self._waiting, self.outputs, clock, self._runtime.intervals.leases)
        self.reports = OutputReports(self._journal, self._attempts, self.outputs, self._output_ready)

    def _build_dispatch(self) -> None:
        """Build what begins runs: the log in its turn, rows that are due, and decisions of people."""
        clock, tasks, events = self._runtime.clock, self._tasks, self.events
        intervals = self._runtime.intervals
        log, ledger, roles, probing = self._log, self.ledger, self._roles, self.probing
        self._gathering = ConsumerGathering(self._slots, roles, clock, events)
        self._context = BackRunContext(
            log, self._slots, self._requirements, tasks, self._settings.window_bytes, self._catalog
        )
        self._runs = RunExecutor(ledger, self._context, self._gathering, self._results, roles, tasks, events)
        self._launcher = RunLauncher(ledger, roles, self._gathering, self._open_replies, self._runs)
        workers = WorkerAvailability(
            log, self.registry, self._requirements, probing, self._catalog, self._settings.worker_grace
        )
        eligibility = Eligibility(roles, self.registry)
        bundle_workers = BundleWorkers(log, ledger, self._slots, self._context, self._results, clock)
        calls = BundleCalls(log, bundle_workers, self._settings.trouble_after)
        outcomes = GroupOutcomes(log, ledger, self._results, roles, eligibility, self._launcher, self._context, events)
        self._groups = GroupDelivery(
            log, ledger, roles, self._slots, self._gathering, calls, bundle_workers, outcomes, self._runtime
        )
        self._pages = PageDelivery(
            log, roles, eligibility, self._gathering, self._open_replies, calls, outcomes, self._groups
        )
        dispatcher = Dispatcher(
            ledger,
            eligibility,
            workers,
            BulkStep(self._log, self._requirements, self.outputs, self._waiting),
            self._launcher,
            self._pages,
            self._context,
        )
        self.lanes = Lanes(log, ledger, dispatcher, self._groups, roles, tasks, events, intervals.gather)
        due_rows = DueRows(log, ledger, roles, probing)
        in_order = OrderedQueue(roles, log, ledger, clock)
        self._retry_queue = RetryQueue(due_rows, workers, dispatcher, in_order, probing, roles, self._runtime)
        self._backlog_changes = BacklogChanges(log, ledger, roles, clock, events, intervals.changes)

    def _build_replies(self) -> None:
        """Build what gives immediate replies."""
        self._left_behind = LeftBehind(self._open_replies, self._records, self._tasks)
        early = EarlyDelivery(
            self._log,
            self.registry,
            self._context,
            self.ledger,
            self._open_replies,
            self._records,
            self._settings.reply_hold_timeout,
        )
        self._replies = ReplyService(
            self._log,
            early,
            self._launcher,
            self._records,
            self._runtime,
            lambda: self._catalog().expects_replies,
        )

    def _subscribe(self, events: RoleEvents) -> None:
        """Say what happens at each role event: all of it, in this order.

        A program that joins is known first: the breaker limits one of a role in trouble, bulk workers become known, and
        the broker forgets what it may keep open. The state of a role moves before all else, which may ask for it. Only
        then anything may be handed to it. Lanes begin before rows are read. The programs of a role that is paused go on
        with what they hold and make, so that only what begins anything hears of it. The ways of groups are found anew
        as workers may be before the consumers to which they lead.
        """
        roles, groups, lanes, rows, outputs = self._roles, self._groups, self.lanes, self._retry_queue, self.outputs
        required, behind, probing, forget = self._requirements, self._left_behind, self.probing, groups.forget_ways
        events.joined.subscribe(probing.joined, required.joined, outputs.joined, behind.joined, forget)
        events.parted.subscribe(required.parted, outputs.parted, behind.parted, forget)
        events.arrived.subscribe(roles.arrived, lanes.arrived, rows.arrived)
        events.left.subscribe(roles.left, groups.left, lanes.left, rows.left)
        events.gone.subscribe(roles.gone)
        events.paused.subscribe(roles.paused, groups.left, lanes.left, rows.left, forget)
        events.resumed.subscribe(roles.arrived, probing.resumed, outputs.may_begin, lanes.arrived, rows.arrived, forget)
        events.configured.subscribe(forget)
        events.tripped.subscribe(roles.tripped, forget, groups.left, lanes.left)
        events.recovered.subscribe(roles.recovered, forget, outputs.may_begin, lanes.arrived, rows.recovered)
        events.slow.subscribe(groups.split, lanes.split)
        events.caught_up.subscribe(self._gathering.caught_up)
        events.rows_due.subscribe(rows.wake)
        events.row_moved.subscribe(self._waiting.note)

    def _output_ready(self, attempt: OutputAttempt) -> None:
        self.probing.went_well(attempt.role_id)
        self._waiting.wake(attempt.output)

    @property
    def figures(self) -> DeliveryFigures:
        """The figures of this moment."""
        return DeliveryFigures(
            self._results.counts,
            self._groups.envelopes,
            {role.id: len(role.in_flight.positions) for role in self._roles.values()},
            sum(party.waiting_bytes for party in self._groups.all_parties()),
            self._log.tail_bytes,
            self._log.head,
        )

    async def finished(self, recipient: RecipientProxy) -> None:
        """Wait until a recipient has no work any more."""
        await self._slots.idle(recipient)

    async def recover(self) -> None:
        """Take up the leftovers of the broker's last run: envelopes open at recipients, and undelivered ones.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        # An earlier try may have noted something, and nobody else writes it down before the start.
        if self.ledger.has_news:
            await self.ledger.write()
        await self._left_behind.recover(self._journal, self._log)
        await self.read_cursors()
        await self._log.refresh()
        await self._follow_order()
        await self._recovery.carry_out(self._catalog().roles)
        await self._attempts.load()
        await self._waiting.recover(self._log, self._attempts)

    def start(self) -> None:
        """Begin to deliver."""
        self._keeping = self._tasks.create_task(self.ledger.keep(), name="ledger")
        self.outputs.spawn(self._leases.watch(), "leases of outputs")
        self._watching = [
            self._tasks.create_task(self._replies.watch(), name="replies of consumers"),
            self._tasks.create_task(self._log.follow(self._replies.wake), name="log"),
            self._tasks.create_task(self.slices.follow(), name="who waits for the log"),
            self._tasks.create_task(self._backlog_changes.carry_out(), name="decisions"),
            self._tasks.create_task(every(self._runtime.intervals.idle, self.lanes.note_idle), name="idle roles"),
        ]

    async def read_cursors(self) -> None:
        """Take up the cursors of new roles, and the changed bounds of known ones.

        Raises:
            JournalUnavailable: the database can't be read now.
        """
        self.ledger.adopt(await self._journal.read(read_cursors))
        self._groups.forget_ways()

    async def follow_configuration(self) -> None:
        """Carry out the decisions of a configuration change, as soon as the database can be read."""
        if self._graph_edits != self._catalog().graph_edits:
            self._graph_edits = self._catalog().graph_edits
            self._log.forget_graphs()
            self._groups.forget_ways()
        self.ledger.adopt(await self._log.read(read_cursors))
        while True:
            try:
                await self._follow_order()
                break
            except JournalUnavailable as error:
                log.warning("order not followed: %s", error, extra={"action": "order_not_followed"})
                await asyncio.sleep(self._runtime.intervals.retry)
        self._waiting.retain([role.id for role in self._catalog().roles.values() if not role.detached])
        self._backlog_changes.wake()

    def decided(self) -> None:
        """Look for decisions about owed envelopes, though the configuration is what it was."""
        self._backlog_changes.wake()

    async def _follow_order(self) -> None:
        """Learn which roles want order now, and which of their ordering keys have rows."""
        ordered = [role.id for role in self._catalog().roles.values() if role.ordered and not role.worker]
        new = self._roles.want_order(ordered) | self._unread_order
        self._unread_order = set()
        # Cursors may have other bounds, too.
        self._groups.forget_ways()
        try:
            # What is noted before has no ordering keys yet, or has some still.
            await self.ledger.written()
            await self._journal.write(FollowOrder(ordered))
            held = await self._journal.read(read_held_keys, new)
        except BaseException:
            self._unread_order |= new
            raise
        for key in held:
            self._roles[key.role_id].keys.add(key)

    async def stop(self, seconds: float) -> None:
        """Hand out nothing more, and let the runs in flight that won't be redelivered end for so many seconds."""
        self.lanes.stop()
        self._retry_queue.stop()
        self.outputs.stop()
        for task in self._watching:
            task.cancel()
        self._replies.stop()
        await asyncio.gather(self._runs.finish(seconds), self._groups.finish(seconds))
        self.ledger.return_reserved()
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            async with asyncio.timeout(seconds):
                await self.ledger.write()
        except (TimeoutError, JournalError) as error:
            # The loss only means that what it reports is redelivered.
            log.error("the last progress is not written: %r", error, extra={"action": "progress_lost"})
