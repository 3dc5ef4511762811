from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xbus.broker.journal.log.planning import cut


@pytest.mark.parametrize(
    ("sizes", "parts", "expected"),
    [
        ([], 3, []),
        ([5], 3, [(0, 1)]),
        ([3, 1, 2], 3, [(0, 1), (1, 2), (2, 3)]),
        ([1] * 10, 1, [(0, 10)]),
        ([1] * 10, 4, [(0, 3), (3, 5), (5, 8), (8, 10)]),
        ([100, 1, 1, 1], 2, [(0, 1), (1, 4)]),
        ([1, 1, 1, 100], 2, [(0, 3), (3, 4)]),
    ],
)
def test_runs_are_of_about_the_same_size(sizes: list[int], parts: int, expected: list[tuple[int, int]]) -> None:
    assert list(cut(sizes, parts)) == expected


@given(st.lists(st.integers(0, 1000), max_size=50), st.integers(1, 20))
def test_all_is_in_one_run_and_no_run_is_empty(sizes: list[int], parts: int) -> None:
    runs = list(cut(sizes, parts))
    assert len(runs) <= parts
    assert all(start < end for start, end in runs)
    assert [place for start, end in runs for place in range(start, end)] == list(range(len(sizes)))
    assert all(end == start for (_, end), (start, _) in pairwise(runs))
