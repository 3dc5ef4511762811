"""The seconds of virtual time that things take; a test hands in many, so that things overtake each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Timing:
    """Chooses, for each thing that happens, one of the times that it may take.

    Args:
        random: chooses; the same seed gives the same run.
        ways: how long a call or an answer is on its way.
        notices: how long it takes until one side knows that the other is gone.
        commits: how long a commit takes.
        reads: how long a read takes.
        lost_rings: the share of rings of the bell that get lost, 0 to 1.
    """

    random: Random
    ways: Sequence[float] = (0.0005,)
    notices: Sequence[float] = (0.05,)
    commits: Sequence[float] = (0.001,)
    reads: Sequence[float] = (0.0005,)
    lost_rings: float = 0.0

    def way(self) -> float:
        """Choose the seconds that a message is on its way."""
        return self.random.choice(self.ways)

    def notice(self) -> float:
        """Choose the seconds until a loss is noticed."""
        return self.random.choice(self.notices)

    def commit(self) -> float:
        """Choose the seconds of a commit."""
        return self.random.choice(self.commits)

    def read(self) -> float:
        """Choose the seconds of a read."""
        return self.random.choice(self.reads)

    def loses_ring(self) -> bool:
        """Choose whether a ring gets lost."""
        return bool(self.lost_rings) and self.random.random() < self.lost_rings
