"""The ranges of one reader as its desk knows them: what the journal has, leases beside, and steps under way."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from xbus.broker.back.readers.sharing import RangeLease, RangeSharing
from xbus.broker.journal.readers.ranges import ReaderRange
from xbus.broker.journal.readers.steps import LeaseOf, lease_lost
from xbus.clock import Clock


class KnownRanges:
    """The ranges of one desk. A step that the journal refuses has the desk read them anew.

    Args:
        sharing: has the leases.
        clock: measures these.
    """

    def __init__(self, sharing: RangeSharing, clock: Clock) -> None:
        self._sharing = sharing
        self._clock = clock
        self._ranges: dict[int, ReaderRange] = {}
        self._busy: set[int] = set()
        """The ranges for which a step is under way."""
        self._passed: set[int] = set()
        """The ranges that have come further than the journal knows, as nothing falls into them."""

    def __getitem__(self, range_id: int) -> ReaderRange:
        return self._ranges[range_id]

    def lease(self, program: UUID, range_id: int, counter: int) -> RangeLease:
        """Find the lease of a program.

        Raises:
            Refused: the program has lost it (``lease_lost``).
        """
        lease = self._sharing.leases.get(range_id)
        if lease is None or (lease.owner, lease.counter) != (program, counter):
            raise lease_lost(range_id)
        return lease

    def is_busy(self, range_id: int) -> bool:
        """Check whether a step is under way for a range."""
        return range_id in self._busy

    @contextmanager
    def busy(self, range_id: int) -> Iterator[None]:
        """Let no other step begin for a range meanwhile."""
        self._busy.add(range_id)
        try:
            yield
        finally:
            self._busy.discard(range_id)

    def follow(self, found: Sequence[ReaderRange]) -> None:
        """Take up all ranges as the journal has them."""
        self._ranges = {each.id: each for each in found}
        self._passed.clear()
        rows = [(each.id, each.counter, each.owner, each.handed_out) for each in found]
        self._sharing.follow(rows, self._clock.monotonic())

    def put(self, changed: ReaderRange) -> None:
        """Take up a range as a step has left it."""
        self._ranges[changed.id] = changed
        self._passed.discard(changed.id)

    def pass_on(self, passed: ReaderRange) -> None:
        """Note that a range has nothing up to a place, unless a step has changed it meanwhile."""
        known = self._ranges.get(passed.id)
        if known is not None and (known.counter, known.handed_out) == (passed.counter, False):
            self._ranges[passed.id] = passed
            self._passed.add(passed.id)

    def take_passed(self) -> list[ReaderRange]:
        """Give the ranges whose places are to be written, as nothing falls into them; ``pass_on`` takes each back."""
        passed = [self._ranges[each] for each in self._passed if each in self._ranges and not self.is_busy(each)]
        self._passed.clear()
        return passed

    def keep(self, lease: RangeLease, known: LeaseOf, changed: ReaderRange | None) -> bool:
        """Take up a range as its owner has left it; None for a parked batch, which has ended.

        Returns:
            True if the range is free now for the program that it is marked for.
        """
        if changed is None:
            self._ranges.pop(known.range_id, None)
            self._sharing.leases.pop(known.range_id, None)
            return False
        self.put(changed)
        if lease.counter == known.counter:
            lease.counter = changed.counter
        lease.is_out = changed.handed_out
        if lease.heir is None or lease.owner != known.program or lease.is_out:
            return False
        lease.owner = None
        return True

    def expire(self) -> dict[UUID, list[RangeLease]]:
        """Free the ranges of silent programs; give them by program, as they were.

        Nobody is silent for whom a step is under way, as the journal may be slow.
        """
        now = self._clock.monotonic()
        for range_id in self._busy:
            lease = self._sharing.leases.get(range_id)
            if lease is not None and lease.owner is not None:
                self._sharing.renew(lease.owner, now)
        return self._sharing.expire(now)
