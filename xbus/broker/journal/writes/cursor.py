"""A consumer role's cursor in the log: pure arithmetic over positions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Cursor:
    """The progress of one consumer role in the log.

    Args:
        role_id: the role.
        from_position: the first position that the role is owed.
        until_position: the first that it is no longer owed; None for all to come.
        position: every position up to here is settled: done, not owed, or in a delivery row of its own.
        above: the settled positions above ``position``: bit 0 means ``position + 1``, and so on.
        handed_to: an upper bound: no position above it was ever handed over to the role.
    """

    role_id: int
    from_position: int
    until_position: int | None
    position: int
    above: int = 0
    handed_to: int = 0

    def copied(self) -> "Cursor":
        """Give it as it is now, whatever becomes of it."""
        return Cursor(self.role_id, self.from_position, self.until_position, self.position, self.above, self.handed_to)

    def owes(self, position: int) -> bool:
        """Check whether ``position`` lies in the part of the log that the role is owed."""
        return self.from_position <= position and (self.until_position is None or position < self.until_position)

    def is_settled(self, position: int) -> bool:
        offset = position - self.position - 1
        return offset < 0 or bool(self.above >> offset & 1)

    def settled_of(self, positions: Sequence[int]) -> set[int]:
        """Give the settled ones of some positions, which grow."""
        if not positions or self.position + self.above.bit_length() < positions[0]:
            return set()
        next_one, above = self.position + 1, self.above
        return {each for each in positions if each < next_one or above >> each - next_one & 1}

    def alike(self, positions: Sequence[int]) -> tuple[bool, int]:
        """Look whether the first of some positions is owed and not settled, and how many behind it are alike.

        Args:
            positions: at least one; they grow.
        """
        settled = self.settled_of(positions)
        if not settled and self.owes(positions[0]) and self.owes(positions[-1]):
            return True, len(positions)
        open_ones = [self.owes(each) and each not in settled for each in positions]
        return open_ones[0], [*open_ones, not open_ones[0]].index(not open_ones[0])

    def settle(self, position: int) -> None:
        """Note that the role needs nothing more at ``position``; settling twice is the same as once."""
        self.settle_range(position, position)

    def settle_range(self, first: int, last: int) -> None:
        """Note that the role needs nothing more from ``first`` to ``last``."""
        if first > self.position + 1:
            self.above |= (1 << max(0, last - first + 1)) - 1 << first - self.position - 1
        elif last > self.position:
            # However long it is, no bits are needed for it.
            passed, self.position = last - self.position, last
            if self.above:
                self.above >>= passed
                self._advance()

    def begin_at(self, position: int, handed_to: int) -> None:
        """Owe nothing below ``position``, which lies above all that was settled: the role was attached again.

        Args:
            handed_to: as the journal has it now; what was reserved before is not there any more.
        """
        self.from_position = position
        self.position, self.above = position - 1, 0
        self.handed_to = max(handed_to, position - 1)

    def reach(self, unsettled: int) -> int:
        """Give the highest position up to which no more positions than this are unsettled.

        Where more are unsettled below the highest settled one, it lies below that.
        """
        return self.position + self.above.bit_count() + unsettled

    def _advance(self) -> None:
        settled = (~self.above & (self.above + 1)).bit_length() - 1
        self.above >>= settled
        self.position += settled

    def unsettled(self) -> list[int]:
        """List the positions up to ``handed_to`` that may have been handed over and are not settled, lowest first."""
        length = self.handed_to - self.position
        if length <= 0:
            return []
        # Between two envelopes of a rare type there may be millions of positions: each must not cost a shift.
        digits = f"{(1 << length) | self.above & (1 << length) - 1:b}"[:0:-1]
        return [self.position + 1 + place for place in _places(digits, "0")]

    def bitmap(self) -> bytes:
        """Pack ``above`` for the database: little endian, no bytes if nothing is settled above."""
        return self.above.to_bytes((self.above.bit_length() + 7) // 8, "little")

    @staticmethod
    def from_bitmap(bitmap: bytes) -> int:
        """Unpack ``above`` from a ``bitmap``."""
        return int.from_bytes(bitmap, "little")


def _places(text: str, wanted: str) -> Iterator[int]:
    """The places of a character in a text."""
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + 1)
