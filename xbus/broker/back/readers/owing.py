"""A batch that its program has processed, until the journal has noted it."""

from dataclasses import dataclass
from uuid import UUID

from xbus.broker.back.readers.sharing import RangeLease
from xbus.broker.journal.readers import LeaseOf, SettleStep


@dataclass(slots=True)
class OwedSettlement:
    """A lease, with the step that settles its batch."""

    lease: RangeLease
    step: SettleStep
    is_settled: bool = False


def lease_of(lease: RangeLease, program: UUID) -> LeaseOf:
    """Give a lease as the journal knows it."""
    return LeaseOf(lease.range_id, lease.counter, program)
