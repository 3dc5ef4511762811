"""Random schedules in virtual time: whatever strikes, and whenever, the promises hold."""

import pytest

from tests.simulation.schedules import run_schedule

SCHEDULES = 30
"""How many are played each time; `make simulate` plays more, from any seed."""


@pytest.mark.parametrize("part", range(2))
def test_the_promises_hold_in_every_schedule(part: int) -> None:
    for seed in range(part * SCHEDULES // 2, (part + 1) * SCHEDULES // 2):
        run_schedule(seed)


@pytest.mark.parametrize("seed", [2, 7, 11, 22])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    assert run_schedule(seed) == run_schedule(seed)
