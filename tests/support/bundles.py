"""Bundles as scripted recipients answer them, and what came of them in a whole back."""

import asyncio
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from tests.support.back import Broker
from tests.support.journal import NOW
from xbus import model
from xbus.broker.journal.audit import RepairDecision
from xbus.broker.journal.log.reading import read_log
from xbus.broker.journal.operations.corrections import add_correction

DONE: list[Any] = [True]
NOT_BEGUN: list[Any] = []
TOO_OLD: list[Any] = [False, [[[0], "too old"]], None]
FAILS: list[Any] = [None, ["recipient_failed", "the disk is full"], None]

Wire = list[Any]


def items_of(bundle: Wire) -> list[bytes]:
    """The item of each envelope of a bundle, as the wire has it."""
    return [batches[0][2][-1:] for _, ((_, _, batches), *_) in bundle]


def by_item(answers: dict[bytes, Any]) -> Callable[[Wire], list[Any]]:
    """Answers by the item of each envelope; what is behind a failure is not begun."""

    def answer(bundle: Wire) -> list[Any]:
        found: list[Any] = []
        for item in items_of(bundle):
            found.append(answers.get(item, DONE))
            if found[-1] is FAILS:
                break
        return found + [NOT_BEGUN] * (len(bundle) - len(found))

    return answer


def letters(broker: Broker, login: str = "store_1") -> str:
    """What one recipient was given, however it came."""
    return b"".join(broker.items(login)).decode()


def bundles(broker: Broker, login: str = "store_1") -> list[str]:
    """What came in each bundle."""
    return [b"".join(items).decode() for items in broker.script.bundles(login)]


async def states(broker: Broker) -> list[tuple[int, str, int]]:
    """Position, state and attempts of each delivery row, in position order."""
    row = model.delivery.c
    wanted = sa.select(row.position, row.state, row.attempts).order_by(row.position)
    found = await broker.journal.read(lambda connection: connection.execute(wanted).all())
    return [(position, state, attempts) for position, state, attempts in found]


async def until_states(broker: Broker, expected: list[tuple[int, str, int]]) -> None:
    while await states(broker) != expected:
        await asyncio.sleep(0)


async def correct(broker: Broker, position: int, after: bytes) -> None:
    """Correct the only item of an envelope for all."""
    (envelope,) = await broker.journal.read(read_log, position - 1, 1)
    decision = RepairDecision("ada", "it has a name now", NOW)

    def work(connection: sa.Connection) -> None:
        add_correction(connection, None, envelope.events[0].segments_id, 0, b"", after, decision)

    await broker.journal.read(work)
