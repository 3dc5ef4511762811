"""Random schedules: what is sent and what strikes, when and for how long, all from one seed."""

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation.variant import Variant
from tests.simulation.why import LOOK_SECONDS, Asker
from tests.simulation.world import STORES, World
from xbus.broker.journal.writes import PauseKind

TYPES: Sequence[list[str]] = (["notes"], ["flights"], ["fares"], ["notes", "flights"], ["fares", "notes", "fares"], [])
KEYS = ("", "ada", "grace")
STEPS = 6

BURST = 0.06
BURST_ENVELOPES = (5, 40)
"""The share of the steps in which two emitters put so many envelopes each at once. A message of more than
``groups.SPAN_ENVELOPES`` goes on in spans. More of them would take most of the time."""

FREEZE = 0.1
FREEZE_SECONDS = (0.2, 1.0, 3.0, 5.0, 12.0)
"""The share of the steps in which the broker is frozen, and for how long. Behind 3 seconds another one leads."""

PAUSED_KINDS = (PauseKind.ROLE, PauseKind.SERVICE, PauseKind.TYPE, PauseKind.EMITTER)
"""The kinds that this bus has entries of."""


@contextmanager
def quiet() -> Iterator[None]:
    """The log tells of every fault that is made on purpose; nobody reads it here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@dataclass(frozen=True)
class Outcome:
    """What came of a schedule.

    Args:
        seconds: how long it took in virtual time.
        turns: of the loop.
        received: the envelopes that were sealed, in order.
        commits: for each store when it committed which.
    """

    seconds: float
    turns: int
    received: Sequence[str]
    commits: Sequence[Mapping[str, Sequence[float]]]


def run_schedule(seed: int, *, ask_why: bool = False) -> Outcome:
    """One schedule from its beginning to its end, with all promises checked.

    Args:
        ask_why: whether ``xbus why`` is asked meanwhile, and its answers are compared with the states of the world.

    Raises:
        AssertionError: one is broken; the same seed breaks it again.
    """
    world = World(seed, Variant.chosen(random.Random(f"variant {seed}")))
    try:
        with quiet():
            others = (random.Random(f"{what} {seed}") for what in ("bursts", "freezes"))
            playing = _play(world, random.Random(f"schedule {seed}"), *others)
            if ask_why:
                playing = _ask_meanwhile(world, Asker(world, seed, STORES), playing)
            world.run(playing)
            world.check()
            commits = [world.commits(login) for login in STORES]
            return Outcome(world.loop.time(), world.loop.turns, world.received(), commits)
    finally:
        world.close()


async def _ask_meanwhile(world: World, asker: Asker, playing: Coroutine[Any, Any, None]) -> None:
    """Ask each second until all is played, and once more about all."""

    async def ask() -> None:
        while True:
            asker.ask()
            await asyncio.sleep(LOOK_SECONDS)

    asking = asyncio.ensure_future(ask())
    played = asyncio.ensure_future(playing)
    try:
        await asyncio.wait([asking, played], return_when=asyncio.FIRST_COMPLETED)
        for done in (asking, played):
            if done.done():
                done.result()
    finally:
        for task in (asking, played):
            task.cancel()
    asker.ask_all()


async def _play(world: World, choices: random.Random, bursts: random.Random, freezes: random.Random) -> None:
    await world.begin()
    async with asyncio.TaskGroup() as strikes:
        for _ in range(STEPS):
            for _ in range(choices.randrange(5)):
                plan = world.emit(
                    choices.choice(TYPES),
                    choices.choice((0, 1, 7)),
                    in_one_call=choices.random() < 0.5,
                    cancel=choices.random() < 0.1,
                    key=choices.choice(KEYS),
                )
                what = choices.random()
                if what < 0.1:
                    world.refuse(choices.choice(world.programs), plan)
                elif what < 0.3:
                    world.refuse_items(choices.choice(world.programs), plan)
            if bursts.random() < BURST:
                for _ in range(bursts.choice(BURST_ENVELOPES)):
                    for login in ("north", "south"):
                        world.put(login, "notes", 1, key=bursts.choice(KEYS))
            await asyncio.sleep(choices.choice((0.0, 0.01, 0.3, 2.0)))
            strikes.create_task(_strike(world, choices))
            if freezes.random() < FREEZE:
                strikes.create_task(world.freeze_broker(freezes.choice(FREEZE_SECONDS)))
            await asyncio.sleep(choices.choice((0.0, 0.05, 1.0)))
    await world.drain()


async def _strike(world: World, choices: random.Random) -> None:
    login = choices.choice(world.programs)
    seconds = choices.choice((0.0, 0.2, 3.0, 12.0))
    match choices.randrange(13):
        case 0:
            if world.broker is not None and not world.broker.is_dead.is_set():
                await world.kill_broker(min(seconds, 3.0))
        case 1:
            await world.kill_recipient(login, seconds)
        case 2:
            await world.stop_recipient(login, seconds)
        case 3:
            await world.cut(login)
        case 4:
            await world.fail_for_a_while(login, 0.3, seconds)
        case 5:
            await world.lose_database(min(seconds, 3.0))
        case 6:
            await world.lose_commit(choices.randrange(20), min(seconds, 3.0))
        case 7:
            world.repair()
            await asyncio.sleep(seconds)
            world.repair()
        case 8:
            await world.restart_recipient(login, seconds)
        case 9:
            if world.broker is not None and not world.broker.is_dead.is_set():
                await world.restart_broker(min(seconds, 3.0))
        case 10:
            world.toggle_order()
        case 11:
            await world.pause(
                choices.choice(PAUSED_KINDS), login, choices.choice(("notes", "flights", "fares")), seconds
            )
        case _:
            await world.fail_for_a_while(choices.choice(STORES), 1.0, min(seconds, 3.0))
