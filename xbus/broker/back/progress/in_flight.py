"""Envelopes that runs bring to a role just now, and its delivery rows that changed since they were read; pure."""

from collections.abc import Iterable, Set


class InFlight:
    """The positions of envelopes, for one role."""

    def __init__(self) -> None:
        self.positions: set[int] = set()
        """The positions of the envelopes in flight; whoever brings a group adds its, and takes them away."""
        self._outdated: set[int] = set()

    # -- envelopes -------------------------------------------------------------------------------------------------

    def begin(self, position: int) -> None:
        """Note that a run begins to bring an envelope."""
        self.positions.add(position)

    def begin_all(self, positions: Iterable[int]) -> None:
        """Note that envelopes begin to be brought."""
        self.positions.update(positions)

    def has_any(self, positions: Iterable[int]) -> bool:
        """Check whether an envelope at any of these positions is being brought."""
        return not self.positions.isdisjoint(positions)

    def end(self, position: int) -> None:
        """Note that the run has ended, and that its results are noted."""
        self.positions.discard(position)

    def end_all(self, positions: Iterable[int]) -> None:
        """The same for several envelopes, or none of them was begun."""
        self.positions.difference_update(positions)

    # -- delivery rows ---------------------------------------------------------------------------------------------

    def begin_reading(self) -> Set[int]:
        """Begin to read the rows of the role.

        Returns:
            What is not to be taken up of the rows that will be found: what is being brought to the role, to which is
            added what is outdated until this is called again. A run may begin and end while rows are read, and its row
            be found all the same.
        """
        self._outdated = set(self.positions)
        return self._outdated

    def outdate(self, position: int) -> None:
        """Mark a row as outdated for those who have read it: a run took it, or it changed."""
        self._outdated.add(position)

    def is_outdated(self, position: int) -> bool:
        """Check whether a row that was read is outdated."""
        return position in self._outdated
