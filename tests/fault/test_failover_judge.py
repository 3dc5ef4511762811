"""The judge of the trial of fail-over finds each promise that is broken; pure."""

import pytest

from tests.fault.failover.__main__ import chosen
from tests.fault.failover.judge import Acknowledged, FailoverRuling, Written, judge_failover

ACKNOWLEDGED = [Acknowledged(1, 1, 1), Acknowledged(2, 1, 2), Acknowledged(1, 2, 3)]
WRITTEN = [Written(1, 1), Written(2, 1), Written(1, 2)]


@pytest.mark.parametrize(
    ("acknowledged", "written", "positions", "ruling"),
    [
        (ACKNOWLEDGED, WRITTEN, [1, 2, 3], FailoverRuling(0, 0, 0, 0)),
        (ACKNOWLEDGED[:2], WRITTEN, [1, 2, 3], FailoverRuling(0, 0, 0, 0)),
        (ACKNOWLEDGED, WRITTEN[:2], [1, 2, 3], FailoverRuling(1, 0, 0, 0)),
        (ACKNOWLEDGED, [*WRITTEN, Written(2, 1)], [1, 2, 3], FailoverRuling(0, 1, 0, 0)),
        (ACKNOWLEDGED, [Written(1, 2), Written(2, 1), Written(1, 1)], [1, 2, 3], FailoverRuling(0, 0, 1, 0)),
        (ACKNOWLEDGED, WRITTEN, [1, 2, 4], FailoverRuling(0, 0, 0, 1)),
        ([*ACKNOWLEDGED[:2], Acknowledged(1, 2, 2)], WRITTEN, [1, 2, 3], FailoverRuling(0, 0, 0, 1)),
    ],
    ids=["kept", "unacknowledged", "lost", "doubled", "reordered", "gap", "position given twice"],
)
def test_each_broken_promise_is_counted(
    acknowledged: list[Acknowledged], written: list[Written], positions: list[int], ruling: FailoverRuling
) -> None:
    assert judge_failover(acknowledged, written, positions) == ruling


def test_each_kind_of_strike_comes_once_before_any_comes_again() -> None:
    kinds = ("kill", "freeze", "both")
    strikes = chosen(7, kinds, 7)
    assert [sorted(strikes[:3]), sorted(strikes[3:6])] == [sorted(kinds)] * 2
    assert chosen(7, kinds, 4) == strikes[:4]
