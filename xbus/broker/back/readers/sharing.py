"""Shares the ranges of a reader among its programs; pure.

A program takes what is free, up to its share. One that has two ranges less than another gets one of them: at once if
no batch of it is out, else as soon as the owner has settled it. Nobody else waits for that.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class RangeLease:
    """A range as its programs share it.

    Args:
        counter: of the range's row.
        owner: the program that reads it; None while it is free.
        is_out: whether a batch of it is out.
        heir: the program that gets it next; None for the first that asks.
        served: when it was handed out last, as a number that grows: the least goes first.
    """

    range_id: int
    counter: int
    owner: UUID | None
    is_out: bool
    heir: UUID | None = None
    served: int = 0


class RangeSharing:
    """The leases of one reader.

    Args:
        seconds: how long a program may be silent.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.leases: dict[int, RangeLease] = {}
        self._programs: dict[UUID, float] = {}

    @property
    def programs(self) -> Iterator[UUID]:
        """The programs that gave a sign of life in time."""
        return iter(self._programs)

    def follow(self, rows: Iterable[tuple[int, int, UUID | None, bool]], now: float) -> None:
        """Take up the ranges as the journal has them: id, counter, owner, whether a batch is out.

        A range that was freed here stays free: the journal keeps the former owner of it until somebody takes it.
        An owner that is new here, as after a restart, has a whole lease to give a sign of life.
        """
        found = {}
        for range_id, counter, owner, is_out in rows:
            known = self.leases.get(range_id)
            if known is not None and known.counter == counter and known.owner in (owner, None):
                known.is_out = is_out
                found[range_id] = known
            else:
                found[range_id] = RangeLease(range_id, counter, owner, is_out)
            if owner is not None and found[range_id].owner == owner:
                self._programs.setdefault(owner, now + self.seconds)
        self.leases = found

    def renew(self, program: UUID, now: float) -> None:
        """Note a sign of life of a program."""
        self._programs[program] = now + self.seconds

    def leave(self, program: UUID) -> list[RangeLease]:
        """Free the ranges of a program that leaves; returns them as they were."""
        freed = [RangeLease(lease.range_id, lease.counter, program, lease.is_out) for lease in self.of(program)]
        self._forget(program)
        return freed

    def expire(self, now: float) -> dict[UUID, list[RangeLease]]:
        """Free the ranges of silent programs; give them by program, as they were."""
        silent = [program for program, until in self._programs.items() if until <= now]
        return {program: self.leave(program) for program in silent}

    def of(self, program: UUID, ended: int | None = None) -> list[RangeLease]:
        """List the ranges of a program: those with a batch out, then the one that waits longest for its turn.

        Args:
            ended: a range whose batch is out no longer, as soon as the journal has noted it.
        """

        def turn(lease: RangeLease) -> tuple[bool, int, int]:
            is_out = lease.is_out and lease.range_id != ended
            return not is_out, lease.served, lease.range_id

        return sorted((lease for lease in self.leases.values() if lease.owner == program), key=turn)

    def is_concerned(self, program: UUID) -> bool:
        """Check whether a program has a range, or is to get one that is somebody's."""
        return any(program in (lease.owner, lease.heir) for lease in self.leases.values())

    def next_for(self, program: UUID) -> RangeLease | None:
        """Find a range that a program is to take now; it may be another's, of which no batch is out.

        Where another has too much, with a batch of each range out, one of its ranges is marked for this program.
        """
        free = [lease for lease in self.leases.values() if lease.owner is None]
        reserved = [lease for lease in free if lease.heir == program]
        if reserved:
            return reserved[0]
        open_to_all = [lease for lease in free if lease.heir is None]
        if open_to_all and self._share(program) < math.ceil(len(self.leases) / max(1, len(self._programs))):
            return min(open_to_all, key=lambda lease: (lease.served, lease.range_id))
        return self._steal(program)

    def took(self, lease: RangeLease, program: UUID, counter: int, now: float) -> None:
        """Note that a program owns a range now; it counts as one that lives, however long that has taken."""
        self._programs.setdefault(program, now + self.seconds)
        lease.owner, lease.counter, lease.heir = program, counter, None

    def _steal(self, program: UUID) -> RangeLease | None:
        # Thousands of programs may wait for few ranges: only those are looked at that have some.
        shares = Counter(lease.owner if lease.heir is None else lease.heir for lease in self.leases.values())
        living = [other for other in shares if other is not None and other in self._programs]
        richest = max(living, key=lambda other: (shares[other], str(other)), default=None)
        if richest is None or shares[richest] < shares[program] + 2:
            return None
        spare = [lease for lease in self.of(richest) if lease.heir is None]
        if not spare:
            return None
        lease = min(spare, key=lambda each: (each.is_out, each.range_id))
        if not lease.is_out:
            return lease
        lease.heir = program
        return None

    def _share(self, program: UUID) -> int:
        """Count the ranges of a program, with those that it is to get, without those that it gives up."""
        return sum(
            lease.heir == program if lease.heir is not None else lease.owner == program
            for lease in self.leases.values()
        )

    def _forget(self, program: UUID) -> None:
        self._programs.pop(program, None)
        for lease in self.leases.values():
            if lease.heir == program:
                lease.heir = None
            if lease.owner == program:
                lease.owner = None
