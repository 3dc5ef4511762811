"""Percentiles of measured values."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that so many percent of the values do not exceed: the nearest rank.

    Args:
        values: in any order, at least one.
        percent: above 0, at most 100.
    """
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
