"""What a true-up tells."""

import pytest

from spark_worker.trueup.comparing import Verdict, check_readable, per_cent
from xbus.errors import Refused


@pytest.mark.parametrize(
    ("correct", "total", "told"),
    [
        (0, 0, 100.0),
        (7, 10, 70.0),
        (2, 3, 66.6666),
        (999_999, 1_000_000, 99.9999),
        (9_999_999_999, 10_000_000_000, 99.9999),
        (10_000_000_000, 10_000_000_000, 100.0),
    ],
)
def test_only_what_is_wholly_correct_is_a_hundred_per_cent(correct: int, total: int, told: float) -> None:
    assert per_cent(correct, total) == told
    assert (f"{told:g}" == "100") is (correct == total)


def test_what_can_not_be_read_at_all_is_no_verdict() -> None:
    check_readable(Verdict(10, 9, 0, 1, 10.0, 0, 7))
    check_readable(Verdict(10, 10, 0, 0, 0.0, 0, 0))
    with pytest.raises(Refused, match=r"none of the 7 items .* --format"):
        check_readable(Verdict(10, 10, 0, 0, 0.0, 0, 7))
