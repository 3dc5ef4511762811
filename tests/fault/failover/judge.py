"""Judges what a consumer with an inbox wrote against what was acknowledged; pure."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Acknowledged(NamedTuple):
    """An envelope that the bus acknowledged: its ordering key, its number there, its position, and two moments."""

    lane: int
    number: int
    position: int
    began: float = 0.0
    ended: float = 0.0


class Written(NamedTuple):
    """An envelope that the consumer wrote."""

    lane: int
    number: int


class FailoverRuling(NamedTuple):
    """How often a promise was broken.

    Args:
        lost: envelopes that were acknowledged and never written.
        doubled: envelopes that were written again.
        reordered: envelopes that were written behind a later one of their ordering key.
        gaps: positions that are missing in the journal, or were given twice.
    """

    lost: int
    doubled: int
    reordered: int
    gaps: int


def judge_failover(
    acknowledged: Sequence[Acknowledged], written: Sequence[Written], positions: Sequence[int]
) -> FailoverRuling:
    """Judge a bus that has come to rest.

    Args:
        acknowledged: in any order.
        written: in the order in which the consumer wrote them.
        positions: of all envelopes of the journal, in their order.
    """
    times = Counter(written)
    lost = sum(not times[Written(each.lane, each.number)] for each in acknowledged)
    newest: dict[int, int] = {}
    reordered = 0
    for lane, number in written:
        reordered += number < newest.get(lane, 0)
        newest[lane] = max(number, newest.get(lane, 0))
    gaps = sum(position != number for number, position in enumerate(positions, 1))
    gaps += len(acknowledged) - len({each.position for each in acknowledged})
    return FailoverRuling(lost, sum(times.values()) - len(times), reordered, gaps)
