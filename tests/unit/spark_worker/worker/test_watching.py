"""How far a job is said to be."""

import pytest

from spark_worker.worker.watching import share


@pytest.mark.parametrize(
    ("jobs", "shown"),
    [
        ([], 0.0),
        ([(1, 1)], 0.0),
        ([(1, 1), (0, 4)], 0.0),
        ([(1, 1), (3, 4)], 0.75),
        ([(4, 4), (0, 4)], 0.5),
        ([(4, 4)], 0.99),
    ],
    ids=["not begun", "a small table", "and what it is for", "in its midst", "a second stage", "not told to be done"],
)
def test_progress_is_that_of_the_large_jobs_and_never_all(jobs: list[tuple[int, int]], shown: float) -> None:
    assert share(jobs) == shown
