"""Random schedules in virtual time: whatever strikes, and whenever, the promises hold."""

import asyncio
import random

import pytest

from tests.simulation.schedules import TYPES, quiet, run_schedule
from tests.simulation.variant import Variant
from tests.simulation.world import STORES, World
from xbus.broker.journal.writes import PauseKind
from xbus.rpc.codec import Value
from xbus.testing.endpoint import RecipientEndpoint

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


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_that_was_frozen_hands_nothing_out_when_another_one_leads(seed: int) -> None:
    """What it wrote when it woke up is refused, and the promises hold."""
    world, choices = World(seed, Variant.chosen(random.Random(f"variant {seed}"))), random.Random(f"frozen {seed}")

    async def play() -> None:
        await world.begin()
        for seconds in (0.2, 3.0, 12.0):
            for _ in range(15):
                world.emit(choices.choice(TYPES), 2, in_one_call=choices.random() < 0.5)
                await asyncio.sleep(choices.choice((0.0, 0.05, 0.2)))
            await world.freeze_broker(seconds)
            await asyncio.sleep(1)
        await world.drain()

    try:
        with quiet():
            world.run(play())
            world.check()
    finally:
        world.close()


LEAST_BROUGHT = 10
"""At least so many commits of a schedule bring what is next; with less it would show little."""


@pytest.mark.parametrize("seed", range(6))
def test_commits_that_bring_what_is_next_keep_the_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores decide together about many small envelopes. Their programs and the broker are struck meanwhile."""
    world, choices = World(seed, Variant(ordered=(), envelopes=1 + seed % 2 * 2)), random.Random(f"brought {seed}")
    brought = 0
    handle = RecipientEndpoint.handle

    def counted(endpoint: RecipientEndpoint, caller: bytes, verb: str, args: list[Value]) -> object:
        nonlocal brought
        brought += verb == "xbus.commit_envelopes" and len(args) == 2
        return handle(endpoint, caller, verb, args)

    monkeypatch.setattr(RecipientEndpoint, "handle", counted)

    async def strike() -> None:
        login, seconds = choices.choice(STORES), choices.choice((0.0, 0.2, 1.0))
        match choices.randrange(5):
            case 0:
                await world.cut(login)
            case 1:
                await world.fail_for_a_while(login, 0.3, seconds)
            case 2 if world.broker is not None and not world.broker.is_dead.is_set():
                await world.kill_broker(seconds)
            case 3:
                await world.stop_recipient(login, seconds)
            case _:
                await world.kill_recipient(login, seconds)

    async def play() -> None:
        await world.begin()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(6):
                for _ in range(20):
                    plan = world.emit(["notes"], 1, in_one_call=True)
                    await asyncio.sleep(0.05)
                if choices.random() < 0.5:
                    world.refuse(choices.choice(STORES), plan)
                await asyncio.sleep(choices.choice((0.5, 2.0)))
                tasks.create_task(strike())
                await asyncio.sleep(20)
        await world.drain()

    try:
        with quiet():
            world.run(play())
            world.check()
        assert brought >= LEAST_BROUGHT
    finally:
        world.close()
