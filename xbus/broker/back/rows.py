"""Delivery rows that are due: envelopes that roles could not get in their turn, brought to them on their own."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from xbus.broker.back.delivery import Deliveries, waiting_for
from xbus.broker.back.ledger import Ledger
from xbus.broker.back.log import Log
from xbus.broker.back.recipient import Recipient
from xbus.broker.back.registry import Registry
from xbus.broker.journal.reading import read_due_deliveries
from xbus.broker.journal.writes import Delivery
from xbus.states import DeliveryState

POLL_SECONDS = 5.0
"""How often rows are looked for when nothing calls for it."""

PAGE_ROWS = 100


class DueRows:
    """Brings what waits in rows to those who can get it now, oldest first."""

    def __init__(self, log: Log, ledger: Ledger, registry: Registry, deliveries: Deliveries) -> None:
        self._log = log
        self._ledger = ledger
        self._registry = registry
        self._deliveries = deliveries
        self._wake = asyncio.Event()
        deliveries.on_retry = self._wake.set

    def arrived(self, recipient: Recipient) -> None:
        """Somebody has come that a row may wait for."""
        self._wake.set()

    def left(self, recipient: Recipient) -> None:
        """What it leaves undone becomes rows for its return."""

    async def follow(self) -> None:
        """For ever: deliver what is due."""
        while True:
            while await self._deliver_page():
                pass
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)
            self._wake.clear()

    async def _deliver_page(self) -> bool:
        """Deliver the oldest rows that are due; false where there are none."""
        await self._ledger.written()
        present = self._registry.all()
        role_ids = [recipient.role.id for recipient in present if not recipient.role.worker]
        services = sorted({recipient.role.service for recipient in present if recipient.role.worker})
        if not role_ids:
            return False
        rows = await self._log.read(read_due_deliveries, role_ids, services, PAGE_ROWS)
        due = [row for row in rows if not self._deliveries.is_in_flight(row.role_id, row.position)]
        for position, group in groupby(due, key=lambda row: row.position):
            await self._deliver(position, list(group))
        return bool(due)

    async def _deliver(self, position: int, rows: Sequence[Delivery]) -> None:
        (envelope,) = await self._log.at([position])
        counted: dict[int, Delivery] = {}
        recipients: list[Recipient] = []
        for row in rows:
            recipient = self._registry.get(row.role_id)
            if recipient is None:
                continue
            missing = [
                service
                for service in await self._deliveries.workers_for(envelope, recipient)
                if not self._registry.is_served(service)
            ]
            if missing:
                self._ledger.move(row, waiting_for(row, missing[0]))
                continue
            attempt = replace(row, state=DeliveryState.RETRY, attempts=row.attempts + 1, service=None)
            self._ledger.move(row, attempt)
            counted[row.role_id] = attempt
            recipients.append(recipient)
        await self._ledger.written()
        await self._deliveries.launch(envelope, recipients, counted)
