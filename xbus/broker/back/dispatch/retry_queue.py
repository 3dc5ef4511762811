"""Delivery rows that are due: envelopes that roles could not get in their turn, brought to them on their own."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Protocol, TypeAlias

from xbus.broker.back.dispatch.dispatcher import Dispatcher
from xbus.broker.back.dispatch.worker_availability import WorkerAvailability
from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import RESERVE_POSITIONS, ConsumerRoles, DeliveryLedger, First, transitions
from xbus.broker.back.recipients import BreakerProbes, ServedRole
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.database.paging import portions
from xbus.broker.journal.log.deliveries import read_due_deliveries, read_next_due
from xbus.broker.journal.log.reading import HeldKey, LogEnvelope, read_key_rows, read_states
from xbus.broker.journal.writes import DeliveryRow, PauseEntry
from xbus.clock import Clock
from xbus.states import DeliveryState

CHECK_SECONDS = 5.0
"""Seconds between looks whether a person has resumed or dropped a parked envelope."""

PAGE_ROWS = RESERVE_POSITIONS
"""The rows that are read at once, and handed over before the first is known to be settled."""

Due: TypeAlias = Callable[[Sequence[int]], Awaitable[Sequence[DeliveryRow]]]
"""The rows at some positions that could be handed over now."""


CHECKED_ROWS = 500


class HandOver(Protocol):
    """Begins to bring an envelope to a recipient."""

    def __call__(
        self, recipient: ServedRole, row: DeliveryRow, envelope: LogEnvelope | None = None
    ) -> Awaitable["asyncio.Task[None] | None"]:
        """The run, or None where there is none; ``envelope`` is that of the row, where it has been read."""


class OrderedQueue:
    """Answers ``RetryQueue`` about roles that want order.

    Args:
        roles: which of their keys have rows.
        log: where rows are read.
        ledger: where they are changed.
        clock: measures when a look is due.
    """

    def __init__(self, roles: ConsumerRoles, log: LogReader, ledger: DeliveryLedger, clock: Clock) -> None:
        self._roles = roles
        self._log = log
        self._ledger = ledger
        self._clock = clock

    def concerns(self, recipient: ServedRole) -> bool:
        """Check whether a recipient's role wants order."""
        return self._roles[recipient.role.id].keys.is_wanted

    def coming(self, role_id: int, served: Collection[str]) -> Sequence[int] | None:
        """The positions of the first rows of a role that may come by themselves now. None where it wants no order."""
        keys = self._roles[role_id].keys
        return keys.coming(served)[:PAGE_ROWS] if keys.is_wanted else None

    async def deliver(self, recipient: ServedRole, served: Collection[str], due: Due, hand_over: HandOver) -> bool:
        """Bring a recipient what of its rows could go now, one after another; false where that is nothing.

        Args:
            served: the worker services that are there.
        """
        keys = self._roles[recipient.role.id].keys
        await self._check(recipient.role.id)
        # What is noted from here on may not be found yet by what is read.
        asked = keys.to_read()
        await self._ledger.written()
        found_some = False
        for key in asked:
            found_some |= await self._deliver_key(recipient, key, hand_over)
        for positions in portions(keys.coming(served), PAGE_ROWS):
            for row in await due(positions):
                found_some = True
                await _until_over(await hand_over(recipient, row))
        return found_some

    async def _deliver_key(self, recipient: ServedRole, key: HeldKey, hand_over: HandOver) -> bool:
        """Bring what was held of a key and is free; false where its lowest row is not."""
        keys = self._roles[key.role_id].keys
        rows = await self._log.read(read_key_rows, key.role_id, key.ordering_key, PAGE_ROWS)
        keys.found(key, rows[0] if rows else None)
        is_free = not rows or rows[0].state is DeliveryState.HELD
        held = list(takewhile(lambda row: row.state is DeliveryState.HELD, rows))
        for row, envelope in zip(held, await self._log.at([row.position for row in held]), strict=True):
            if not keys.take_up(row):
                break
            await _until_over(await hand_over(recipient, row, envelope))
        return is_free

    async def _check(self, role_id: int) -> None:
        keys = self._roles[role_id].keys
        now = self._clock.monotonic()
        if keys.checked_at is not None and now - keys.checked_at < CHECK_SECONDS:
            return
        keys.checked_at = now
        states: dict[int, DeliveryState] = {}
        await self._ledger.written()
        for positions in portions(keys.firsts(First.ON_ITS_OWN, First.PARKED), CHECKED_ROWS):
            states |= await self._log.read(read_states, role_id, positions)
        keys.check(states)


async def _until_over(run: "asyncio.Task[None] | None") -> None:
    if run is not None:
        await asyncio.wait([run])


DUE_ROWS = 100


class DueRows:
    """Reads rows.

    Args:
        log: where rows and envelopes are read.
        ledger: where rows are changed.
        roles: what runs are bringing to them.
        probing: which workers may be asked now.
    """

    def __init__(self, log: LogReader, ledger: DeliveryLedger, roles: ConsumerRoles, probing: BreakerProbes) -> None:
        self._log = log
        self._ledger = ledger
        self._roles = roles
        self._probing = probing

    async def find(
        self, recipient: ServedRole, now: datetime, well_since: datetime | None, among: Sequence[int] | None = None
    ) -> list[DeliveryRow]:
        """The oldest rows that are due and that no run is about to settle.

        Args:
            well_since: what failed before that waits no longer.
            among: the positions of those that are asked about; None for all.
        """
        role = self._roles[recipient.role.id]
        outdated = role.in_flight.begin_reading()
        await self._ledger.written()
        served = self._probing.served()
        rows = await self._log.read(read_due_deliveries, role.id, served, DUE_ROWS, now, well_since, among)
        return [row for row in rows if row.position not in outdated | role.in_flight.positions]

    async def next_due_at(self, role_id: int, now: datetime, among: Sequence[int] | None) -> datetime | None:
        """When the next row of a role becomes due by its time.

        Args:
            among: the positions of those that are asked about; None for all.
        """
        return await self._log.read(read_next_due, role_id, now, among)

    async def envelope(self, row: DeliveryRow) -> LogEnvelope:
        """The envelope of a row."""
        (envelope,) = await self._log.at([row.position])
        return envelope

    def have_wait(self, row: DeliveryRow, service: str, pause: PauseEntry | None) -> None:
        """Have a row wait for a worker service, unless it does so already or was changed meanwhile.

        Args:
            pause: the pause of that service; None where it is not paused.
        """
        waiting = transitions.waiting_for(row, service, pause)
        is_news = (row.service, row.code) != (waiting.service, waiting.code)
        if is_news and not self._roles[row.role_id].in_flight.is_outdated(row.position):
            self._ledger.move(row, waiting)


ANY_TIME = datetime.max.replace(tzinfo=UTC)
"""All rows are due then."""


class RetryQueue:
    """Brings each role what waits for it in rows, oldest first, as far as it can get it now.

    Args:
        due_rows: finds them.
        workers: knows which workers an envelope needs.
        dispatcher: starts the runs.
        in_order: knows what comes first for roles that want order.
        probing: knows who is in trouble, and gets less.
        roles: know what is in flight to each consumer.
        runtime: has the clock, and the tasks in which the readers run, one for each consumer that is there.
    """

    def __init__(
        self,
        due_rows: DueRows,
        workers: WorkerAvailability,
        dispatcher: Dispatcher,
        in_order: OrderedQueue,
        probing: BreakerProbes,
        roles: ConsumerRoles,
        runtime: Runtime,
    ) -> None:
        self._due_rows = due_rows
        self._workers = workers
        self._dispatcher = dispatcher
        self._in_order = in_order
        self._probing = probing
        self._roles = roles
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._poll_seconds = runtime.intervals.rows
        self._readers: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def arrived(self, recipient: ServedRole) -> None:
        """Read the rows of a consumer that has come; look again where a worker has that others may wait for."""
        if recipient.role.worker:
            self.wake_all()
            return
        wake = asyncio.Event()
        task = self._tasks.create_task(self._read(recipient, wake), name=f"rows of {recipient.role.login}")
        self._readers[recipient.role.id] = (task, wake)

    def left(self, recipient: ServedRole) -> None:
        """Read its rows no longer."""
        task, _ = self._readers.pop(recipient.role.id, (None, None))
        if task is not None:
            task.cancel()

    def wake(self, role_id: int) -> None:
        """There may be rows of a role that are due."""
        if role_id in self._readers:
            self._readers[role_id][1].set()

    def recovered(self, recipient: ServedRole) -> None:
        """Look again: rows of any role may have waited for a worker, or for this consumer."""
        self.wake_all()

    def wake_all(self) -> None:
        """A worker may be asked again that rows of any role may wait for."""
        for _, wake in self._readers.values():
            wake.set()

    def stop(self) -> None:
        """Hand out no more rows."""
        for task, _ in self._readers.values():
            task.cancel()

    async def _read(self, recipient: ServedRole, wake: asyncio.Event) -> None:
        arrived_at = self._clock.now()
        while True:
            wake.clear()
            looked_at = self._clock.now()
            while await self._deliver_some(recipient, arrived_at):
                looked_at = self._clock.now()
            seconds = await self._idle_seconds(recipient.role.id, looked_at)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await wake.wait()

    async def _idle_seconds(self, role_id: int, looked_at: datetime) -> float:
        """For how long nothing of a role becomes due; what has become due since the look is due at once."""
        waits = [self._poll_seconds]
        due_at = await self._due_rows.next_due_at(role_id, looked_at, self._in_order.coming(role_id, ()))
        if due_at is not None:
            waits.append((due_at - self._clock.now()).total_seconds())
        if to_probe := self._probing.seconds_to_probe(role_id):
            waits.append(to_probe)
        return min(waits)

    async def _deliver_some(self, recipient: ServedRole, arrived_at: datetime) -> bool:
        """Deliver what can be delivered now; false where that is nothing.

        Args:
            arrived_at: what failed before that waits no longer: a delay is for one that is there and fails.
        """
        if self._probing.is_troubled(recipient.role.id):
            await self._probe(recipient)
            return False
        role = self._roles[recipient.role.id]
        well_since = max(arrived_at, role.breaker.over_since or arrived_at)
        if self._in_order.concerns(recipient):
            await self._dispatcher.predecessor_over(recipient)
            role.in_flight.begin_reading()
            return await self._in_order.deliver(
                recipient,
                self._probing.served(),
                lambda positions: self._due_rows.find(recipient, self._clock.now(), well_since, positions),
                self._deliver_unless_troubled,
            )
        due = await self._due_rows.find(recipient, self._clock.now(), well_since)
        for row in due:
            await self._deliver_unless_troubled(recipient, row)
        return bool(due)

    async def _deliver_unless_troubled(
        self, recipient: ServedRole, row: DeliveryRow, envelope: LogEnvelope | None = None
    ) -> "asyncio.Task[None] | None":
        return None if self._probing.is_troubled(recipient.role.id) else await self._deliver(recipient, row, envelope)

    async def _probe(self, recipient: ServedRole) -> None:
        """Deliver one row to a consumer in trouble, if it is due and nothing else is on its way."""
        role_id = recipient.role.id
        role = self._roles[role_id]
        if role.in_flight.positions or not self._probing.is_time(role_id):
            return
        coming = self._in_order.coming(role_id, self._probing.served())
        due = await self._due_rows.find(recipient, ANY_TIME, None, coming)
        rows = {row.position: row for row in due}
        if not rows:
            # What comes next shows how it is.
            self._probing.went_well(role_id)
        elif self._probing.is_troubled(role_id):
            await self._deliver(recipient, rows[role.breaker.probe(list(rows))])

    async def _deliver(
        self, recipient: ServedRole, row: DeliveryRow, envelope: LogEnvelope | None = None
    ) -> "asyncio.Task[None] | None":
        if envelope is None:
            envelope = await self._due_rows.envelope(row)
        for service in await self._workers.workers_for(envelope, recipient):
            if not self._probing.admits(service):
                self._due_rows.have_wait(row, service, self._workers.pause_of(service))
                return None
        return await self._dispatcher.bring(envelope, recipient, row)
