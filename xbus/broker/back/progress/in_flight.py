"""Envelopes that runs bring to roles just now, and delivery rows that changed since they were read; pure."""

from collections import defaultdict
from collections.abc import Set


class InFlight:
    """The positions of envelopes, by role."""

    def __init__(self) -> None:
        self._brought: defaultdict[int, set[int]] = defaultdict(set)
        self._outdated: defaultdict[int, set[int]] = defaultdict(set)

    # -- envelopes -------------------------------------------------------------------------------------------------

    def begin(self, role_id: int, position: int) -> None:
        """A run begins to bring an envelope to a role."""
        self._brought[role_id].add(position)

    def end(self, role_id: int, position: int) -> None:
        """It does so no more, and what has come of it is noted."""
        self._brought[role_id].discard(position)

    def to(self, role_id: int) -> Set[int]:
        """What is being brought to a role now."""
        return self._brought.get(role_id, frozenset())

    def highest(self) -> dict[int, int]:
        """For each role that is brought something the highest position of that."""
        return {role_id: max(positions) for role_id, positions in self._brought.items() if positions}

    # -- delivery rows ---------------------------------------------------------------------------------------------

    def begin_reading(self, role_id: int) -> Set[int]:
        """The rows of a role are about to be read.

        Returns:
            What is not to be taken up of the rows that will be found: what is being brought to the role, to which is
            added what is outdated until this is called again. A run may begin and end while rows are read, and its row
            be found all the same.
        """
        self._outdated[role_id] = set(self.to(role_id))
        return self._outdated[role_id]

    def outdate(self, role_id: int, position: int) -> None:
        """A row is not to be taken up by those who have read it already: a run has it, it is settled, or changed."""
        self._outdated[role_id].add(position)

    def is_outdated(self, role_id: int, position: int) -> bool:
        """Whether that is so of a row that was read."""
        return position in self._outdated.get(role_id, ())
