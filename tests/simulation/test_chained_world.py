"""Everything strikes while flights go on as another type: each is made once, and whole, and both stores get it."""

import asyncio
import random

import pytest

from tests.simulation.schedules import KEYS, TYPES, quiet
from tests.simulation.variant import Variant
from tests.simulation.world import STORES, World
from xbus.broker.journal.writes import PauseKind

STEPS = 12
LONG = (0.0, 0.3, 2.0, 8.0)


async def strike(world: World, choices: random.Random) -> None:
    """One thing that goes wrong."""
    seconds, login = choices.choice(LONG), choices.choice(("names_1", *STORES))
    kind = choices.choice((PauseKind.ROLE, PauseKind.TYPE))
    await choices.choice(
        (
            lambda: world.kill_broker(seconds),
            lambda: world.restart_broker(seconds),
            lambda: world.kill_recipient(login, seconds),
            lambda: world.stop_recipient(login, seconds),
            lambda: world.cut(login),
            lambda: world.lose_database(seconds),
            lambda: world.lose_commit(choices.randrange(15), seconds),
            lambda: world.pause(kind, login, "flights", seconds),
        )
    )()


@pytest.mark.parametrize("seed", range(8))
def test_what_is_made_of_flights_is_made_once_whatever_strikes(seed: int) -> None:
    choices = random.Random(seed)
    world = World(seed, Variant(chained=True, own=seed % 3 == 0, bulk=seed % 2 == 1))

    async def story() -> None:
        await world.begin()
        for _ in range(STEPS):
            types = choices.choice((["flights"], *TYPES))
            cancel, in_one_call = choices.random() < 0.1, choices.random() < 0.5
            items = choices.choice((0, 1, 7))
            world.emit(types, items, in_one_call=in_one_call, cancel=cancel, key=choices.choice(KEYS))
            await asyncio.sleep(choices.choice(LONG))
            await strike(world, choices)
        await world.drain()

    try:
        with quiet():
            world.run(story())
        world.check()
        assert len(world.plans()) > len(world.sent.plans), "something was made"
    finally:
        world.close()
