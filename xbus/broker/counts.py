"""Counts and histograms for metrics: plain numbers that the code on the way of envelopes adds to; pure.

They cost an addition per envelope, bundle or commit. The server of metrics reads them now and then.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

Key = TypeVar("Key", int, str)
Count = TypeVar("Count")

MOST_KEYS = 1_000
"""The most keys that are counted apart. More would let the pages of metrics grow with each name that was ever used."""


class CountsBy(dict[Key | None, Count]):
    """Counts for each key, such as the login of a role.

    The first keys are counted apart. All further ones are counted together, under None, so that no count ever falls.

    Args:
        begin: makes the counts of a new key.
        most: how many are counted apart.

    Example:
        >>> delivered: CountsBy[str, Counter[str]] = CountsBy(Counter)
        >>> delivered["ledger_1"]["done"] += 3
        >>> delivered["ledger_1"]["done"]
        3
    """

    def __init__(self, begin: Callable[[], Count], most: int = MOST_KEYS) -> None:
        super().__init__()
        self._begin = begin
        self._most = most

    def __missing__(self, key: Key | None) -> Count:
        if key is not None and len(self) >= self._most:
            return self[None]
        counts = self[key] = self._begin()
        return counts


class Histogram:
    """Counts values by their size.

    Args:
        bounds: the upper bounds of the buckets, rising; one more bucket takes what is larger.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """By bucket, how many values it took."""
        self.sum = 0.0
        """The sum of all values."""

    def note(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value
