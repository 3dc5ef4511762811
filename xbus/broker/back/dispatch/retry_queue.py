"""Delivery rows that are due: envelopes that roles could not get in their turn, brought to them on their own."""

import asyncio
import contextlib
from datetime import UTC, datetime

from xbus.broker.back.dispatch.dispatcher import Dispatcher
from xbus.broker.back.dispatch.due_rows import DueRows
from xbus.broker.back.dispatch.ordered_queue import OrderedQueue
from xbus.broker.back.dispatch.worker_availability import WorkerAvailability
from xbus.broker.back.progress import ConsumerRoles
from xbus.broker.back.recipients import BreakerProbes, ServedRole
from xbus.broker.back.runtime import Runtime
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow

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
