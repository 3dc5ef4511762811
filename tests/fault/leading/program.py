"""An emitter with many calls in flight, and a consumer with an inbox; both write down what is done, as JSON."""

import asyncio
import itertools
import json
import random
import signal
import sys
import time
from typing import Any

import sqlalchemy as sa

from tests.support.bus import PASSWORD
from xbus.emitter import AsyncEmitter
from xbus.recipient import Consumer, Envelope, Event, Item, run
from xbus.recipient.inbox import Inbox

IN_FLIGHT = 50
LANES = 10
"""The ordering keys."""

PAUSE_SECONDS = 1.0
"""Seconds between two calls of a sender at the most, until it is told by SIGUSR1 to make none."""


def say(**told: Any) -> None:
    """Write a line with the time of the machine's monotonic clock."""
    sys.stdout.write(json.dumps({"at": time.monotonic(), **told}) + "\n")
    sys.stdout.flush()


async def emit(front: str) -> None:
    """Send number after number, each under a key, by many senders side by side."""
    numbers = itertools.count(1)
    paces = itertools.cycle((0.0, PAUSE_SECONDS))
    pace = [PAUSE_SECONDS]
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: pace.append(next(paces)))

    async def send() -> None:
        while True:
            number = next(numbers)
            lane = f"lane {number % LANES}"
            receipt = await emitter.put("orders", [number], ordering_key=lane, key=f"order {number}")
            say(number=number, position=receipt.position)
            await asyncio.sleep(random.uniform(0, pace[-1]))

    async with AsyncEmitter(front, "emitter_1", PASSWORD) as emitter, asyncio.TaskGroup() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.create_task(send())


class Taker(Consumer):
    """Notes each envelope in its inbox, which lives as long as this, and tells whether it was new."""

    def __init__(self) -> None:
        self._engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
        self._inbox = Inbox("store_1")
        self._inbox.create(self._engine)

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["number"] = item.value

    def commit(self, envelope: Envelope) -> None:
        with self._engine.begin() as connection:
            is_new = self._inbox.note(connection, envelope.id)
        say(id=envelope.id, number=envelope.state["number"], position=envelope.position, new=is_new)


def main(kind: str, address: str) -> None:
    """Send, or take, until the trial ends this."""
    if kind == "emit":
        asyncio.run(emit(address))
    else:
        run(Taker(), address, "store_1", PASSWORD)


if __name__ == "__main__":
    main(*sys.argv[1:])
