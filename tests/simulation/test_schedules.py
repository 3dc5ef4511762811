"""Random schedules in virtual time: whatever strikes, and whenever, the promises hold."""

import asyncio
import random

import pytest

from tests.simulation.schedules import TYPES, quiet, run_schedule
from tests.simulation.world import STORES, World
from xbus.broker.journal.writes import PauseKind

SCHEDULES = 30
"""How many are played each time; `make simulate` plays more, from any seed."""


@pytest.mark.parametrize("part", range(2))
def test_the_promises_hold_in_every_schedule(part: int) -> None:
    for seed in range(part * SCHEDULES // 2, (part + 1) * SCHEDULES // 2):
        run_schedule(seed)


@pytest.mark.parametrize("seed", [21, 38])
def test_why_is_right_in_every_state(seed: int) -> None:
    """Both have ordered roles, bulk workers and rows that wait for others; `make simulate` asks in more."""
    run_schedule(seed, ask_why=True)


@pytest.mark.parametrize("seed", [2, 7, 11, 22])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    assert run_schedule(seed) == run_schedule(seed)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_begins_at_a_paused_store_and_nothing_comes_twice(seed: int) -> None:
    """Without faults, so that whatever a pause does wrong shows."""
    world, choices = World(seed), random.Random(f"pauses {seed}")

    async def send() -> None:
        for _ in range(40):
            world.emit(choices.choice(TYPES), 2, in_one_call=True)
            await asyncio.sleep(0.5)

    async def play() -> None:
        await world.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            for _ in range(4):
                await asyncio.sleep(1)
                kind = choices.choice((PauseKind.ROLE, PauseKind.SERVICE))
                await world.pause(kind, choices.choice(STORES), "", 4)
        await world.drain()

    try:
        with quiet():
            world.run(play())
            world.check()
        assert len(world.pauses) == 4
    finally:
        world.close()
