"""Makes the steps of each batch durable. Steps of different ranges share a commit."""

from datetime import datetime

from xbus.broker.journal.journal import Journal
from xbus.broker.journal.log.slices.values import Place
from xbus.broker.journal.readers.ranges import ReaderRange
from xbus.broker.journal.readers.steps import LeaseOf, SettleStep, put_out, settle, settle_and_put_out, take


class RangeSteps:
    """Changes ranges in the journal, each as long as the caller knows its counter.

    Each step raises ``Refused`` where somebody else has changed the range (``lease_lost``), and ``JournalUnavailable``.

    Args:
        journal: keeps them.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def take(self, known: LeaseOf, role_id: int | None, expires_at: datetime) -> ReaderRange:
        """Make a program the owner of a range."""
        return await self._journal.step(known.range_id, take, known, role_id, expires_at)

    async def settle(self, done: SettleStep) -> ReaderRange:
        """Settle a batch up to a place."""
        return await self._journal.step(done.lease.range_id, settle, done.lease, done.place, done.note)

    async def put_out(self, known: LeaseOf, to: Place, expires_at: datetime) -> ReaderRange:
        """Keep the bounds of a batch."""
        return await self._journal.step(known.range_id, put_out, known, to, expires_at)

    async def settle_and_put_out(
        self, done: SettleStep, known: LeaseOf, to: Place, expires_at: datetime
    ) -> tuple[ReaderRange, ReaderRange]:
        """Settle a batch, and keep the bounds of the next one."""
        if known.range_id != done.lease.range_id:
            # It locks two ranges in their order, so it must not come behind steps with others.
            return await self._journal.run(settle_and_put_out, done, known, to, expires_at)
        return await self._journal.step(known.range_id, settle_and_put_out, done, known, to, expires_at)
