"""Delivery rows that are due: envelopes that roles could not get in their turn, brought to them on their own."""

import asyncio
import contextlib
from datetime import datetime

from xbus.broker.back import fate
from xbus.broker.back.delivery import Deliveries
from xbus.broker.back.ledger import Ledger
from xbus.broker.back.log import Log
from xbus.broker.back.recipient import Recipient
from xbus.broker.back.registry import Registry
from xbus.broker.journal.deliveries import read_due_deliveries, read_next_due
from xbus.broker.journal.writes import Delivery
from xbus.clock import Clock

POLL_SECONDS = 5.0
"""How often rows are looked for when nothing calls for it."""

PAGE_ROWS = 100


class DueRows:
    """Brings each role what waits for it in rows, oldest first, as far as it can get it now.

    Args:
        log: where rows and envelopes are read.
        ledger: where attempts are counted.
        registry: who is there.
        deliveries: what starts the runs.
        clock: says what is due.
        tasks: where the readers run, one for each consumer that is there.
    """

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        registry: Registry,
        deliveries: Deliveries,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._registry = registry
        self._deliveries = deliveries
        self._clock = clock
        self._tasks = tasks
        self._readers: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def arrived(self, recipient: Recipient) -> None:
        """Read the rows of a consumer that has come; look again where a worker has that others may wait for."""
        if recipient.role.worker:
            for role_id in self._readers:
                self.wake(role_id)
            return
        wake = asyncio.Event()
        task = self._tasks.create_task(self._read(recipient, wake), name=f"rows of {recipient.role.login}")
        self._readers[recipient.role.id] = (task, wake)

    def left(self, recipient: Recipient) -> None:
        """Read its rows no longer."""
        task, _ = self._readers.pop(recipient.role.id, (None, None))
        if task is not None:
            task.cancel()

    def wake(self, role_id: int) -> None:
        """There may be rows of a role that are due."""
        if role_id in self._readers:
            self._readers[role_id][1].set()

    def stop(self) -> None:
        """Hand out no more rows."""
        for task, _ in self._readers.values():
            task.cancel()

    async def _read(self, recipient: Recipient, wake: asyncio.Event) -> None:
        arrived_at = self._clock.now()
        while True:
            wake.clear()
            while await self._deliver_page(recipient, arrived_at):
                pass
            seconds = await self._idle_seconds(recipient.role.id)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), seconds)

    async def _idle_seconds(self, role_id: int) -> float:
        """For how long nothing of a role becomes due."""
        now = self._clock.now()
        due_at = await self._log.read(read_next_due, role_id, now)
        return POLL_SECONDS if due_at is None else min((due_at - now).total_seconds(), POLL_SECONDS)

    async def _deliver_page(self, recipient: Recipient, arrived_at: datetime) -> bool:
        """Deliver the oldest rows that are due; false where there are none.

        Args:
            arrived_at: what failed before that waits no longer: a delay is for one that is there and fails.
        """
        taken_up = self._deliveries.taken_up(recipient.role.id)
        await self._ledger.written()
        served = sorted({other.role.service for other in self._registry.all() if other.role.worker})
        now = self._clock.now()
        rows = await self._log.read(read_due_deliveries, recipient.role.id, served, PAGE_ROWS, now, arrived_at)
        due = [row for row in rows if row.position not in taken_up | self._deliveries.in_flight(row.role_id)]
        for row in due:
            await self._deliver(recipient, row)
        return bool(due)

    async def _deliver(self, recipient: Recipient, row: Delivery) -> None:
        (envelope,) = await self._log.at([row.position])
        for service in await self._deliveries.workers_for(envelope, recipient):
            if not self._registry.is_served(service):
                self._ledger.move(row, fate.waiting_for(row, service))
                return
        await self._deliveries.bring(envelope, recipient, row)
