"""Finds the delivery rows of a role that are due, and that no run is about to settle."""

from collections.abc import Sequence
from datetime import datetime

from xbus.broker.back.log import LogReader
from xbus.broker.back.progress import ConsumerRoles, DeliveryLedger, transitions
from xbus.broker.back.recipients import BreakerProbes, ServedRole
from xbus.broker.journal.log.deliveries import read_due_deliveries, read_next_due
from xbus.broker.journal.log.reading import LogEnvelope
from xbus.broker.journal.writes import DeliveryRow, PauseEntry

PAGE_ROWS = 100


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
        rows = await self._log.read(read_due_deliveries, role.id, served, PAGE_ROWS, now, well_since, among)
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
