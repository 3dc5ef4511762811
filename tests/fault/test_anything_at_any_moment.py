"""Broker, workers and consumers end at moments drawn from a seed while emitters send; nothing acknowledged is lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.showing import progress, shown
from tests.support.waiting import DEADLINE_SECONDS, answered, eventually
from xbus.emitter import AsyncEmitter

GRAPH = {"test_event": {"w": ["c", "d"], "c": [], "d": []}}
ENDINGS = 5
SEALED_BETWEEN = 5
SECONDS_BETWEEN = 0.6
PAUSE_SECONDS = 0.05
PATIENCE_SECONDS = 1.5
"""How long an emitter of the old kind waits for an answer before it gives an envelope up."""


class Books(OldConsumer):
    """A consumer that keeps exactly what it was told to keep: nothing before the end, nothing of what was stopped."""

    def __init__(self, address: str, login: str) -> None:
        super().__init__(address, login)
        self.open: dict[str, list[bytes]] = {}
        self.kept: dict[str, list[bytes]] = {}

    def do_start_event(self, envelope_id: str, event_id: str, type_name: str) -> Any:
        assert envelope_id not in self.open, "started twice without a stop between"
        self.open[envelope_id] = []
        return True, None

    def do_send_item(self, envelope_id: str, event_id: str, indices: list[int], data: bytes) -> Any:
        self.open[envelope_id].append(data)
        return True, None

    def do_end_envelope(self, envelope_id: str) -> Any:
        self.kept[envelope_id] = self.open.pop(envelope_id)
        return True, None

    def do_stop_envelope(self, envelope_id: str) -> Any:
        self.open.pop(envelope_id, None)
        return True


class Senders:
    """Emitters that send envelope after envelope, and what they know of them."""

    def __init__(self) -> None:
        self.sealed: dict[str, list[bytes]] = {}
        self.doubtful: dict[str, list[bytes]] = {}
        self.given_up: set[str] = set()
        self.stop = False

    async def go_on(self) -> None:
        """Wait until some more are sealed."""
        enough = len(self.sealed) + SEALED_BETWEEN
        await eventually(lambda: len(self.sealed) >= enough, "envelopes are sealed")

    async def old(self, daemon: Daemon, login: str, chance: random.Random) -> None:
        """By the old verbs; an envelope of which a call went unanswered is given up."""
        number = 0
        async with OldEmitter(daemon.front, login) as emitter:
            emitter.be_patient_for(PATIENCE_SECONDS)
            while not self.stop:
                number += 1
                items = [b"%s %d %d" % (login.encode(), number, n) for n in range(chance.randint(0, 10))]
                try:
                    await self._send(emitter, items, chance)
                except (AssertionError, TimeoutError):
                    pass  # it goes on with another one
                await asyncio.sleep(PAUSE_SECONDS)

    async def _send(self, emitter: OldEmitter, items: list[bytes], chance: random.Random) -> None:
        envelope_id = await emitter.call.start_envelope(emitter.token)
        assert envelope_id
        self.given_up.add(envelope_id)
        event_id = await emitter.start_event(envelope_id)
        await emitter.send(envelope_id, event_id, *items)
        await emitter.end_event(envelope_id, event_id)
        if chance.random() < 0.1:
            await emitter.call.cancel_envelope(emitter.token, envelope_id)
            return
        self.given_up.discard(envelope_id)
        self.doubtful[envelope_id] = items
        assert await emitter.call.end_envelope(emitter.token, envelope_id)
        del self.doubtful[envelope_id]
        self.sealed[envelope_id] = items

    async def new(self, daemon: Daemon, login: str, chance: random.Random) -> None:
        """By the SDK, which repeats until it knows."""
        number = 0
        async with AsyncEmitter(daemon.front, login, PASSWORD) as emitter:
            while not self.stop:
                number += 1
                items = [b"sdk %d %d" % (number, n) for n in range(chance.randint(1, 100))]
                async with emitter.envelope() as envelope, envelope.event("test_event") as event:
                    for item in items:
                        await event.send(item)
                        if chance.random() < 0.03:
                            await asyncio.sleep(0.01)
                self.sealed[envelope.id] = items
                await asyncio.sleep(PAUSE_SECONDS)


async def test_nothing_that_was_acknowledged_is_lost(database_url: str, start_daemon: StartDaemon) -> None:
    seed = 2
    chance = random.Random(seed)
    add_bus(database_url, GRAPH, {"w": 2})
    daemon = start_daemon(database_url, {"back": {"worker_grace": 0.3}})
    senders = Senders()
    workers = [OldWorker(daemon.back, f"w_{n}", lambda i, d: [(i, d)]) for n in (1, 2)]
    consumers = [Books(daemon.back, f"{name}_1") for name in "cd"]
    for recipient in (*workers, *consumers):
        await recipient.__aenter__()
    sending = [
        asyncio.create_task(senders.old(daemon, "emitter_1", random.Random(seed))),
        asyncio.create_task(senders.old(daemon, "emitter_1", random.Random(seed + 100))),
        asyncio.create_task(senders.new(daemon, "emitter_2", random.Random(seed))),
    ]
    try:
        # One vanishes once: who vanishes five times in one envelope has it parked.
        endings: list[Callable[[], Awaitable[None]]] = [
            *[lambda recipient=recipient: _vanish(recipient) for recipient in (workers[0], *consumers)],
            *[lambda: _crash(daemon)] * (ENDINGS - 3),
        ]
        chance.shuffle(endings)
        for ending in endings:
            await senders.go_on()
            await asyncio.sleep(chance.uniform(0, 2 * SECONDS_BETWEEN))
            await ending()
        await senders.go_on()
        senders.stop = True
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.gather(*sending)
        await _all_delivered(database_url, senders, consumers)
    finally:
        for task in sending:
            task.cancel()
        for recipient in (*workers, *consumers):
            with suppress(Exception):
                await recipient.leave()

    assert len(senders.sealed) > 20
    for consumer in consumers:
        for envelope_id, items in senders.sealed.items():
            assert consumer.kept.get(envelope_id, items) == items
        for envelope_id, items in senders.doubtful.items():
            assert consumer.kept.get(envelope_id, items) == items
        assert not senders.given_up & consumer.kept.keys()
        assert consumer.kept.keys() <= senders.sealed.keys() | senders.doubtful.keys()
        assert not consumer.open


async def _all_delivered(url: str, senders: Senders, consumers: list[Books]) -> None:
    """Wait until everything is where it belongs; what was in five attempts that broke off may be parked instead."""
    wanted = {(consumer, envelope_id) for consumer in consumers for envelope_id in senders.sealed}
    deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
    while missing := {(consumer, envelope_id) for consumer, envelope_id in wanted if envelope_id not in consumer.kept}:
        told = [
            (await asyncio.to_thread(progress, url, envelope_id))[consumer.login] for consumer, envelope_id in missing
        ]
        if all(role.state == "parked" and (role.attempts or 0) >= 5 for role in told):
            break
        assert asyncio.get_running_loop().time() < deadline, f"{len(missing)} are missing: {told[:5]}"
        await asyncio.sleep(0.2)
    assert len(missing) < 5
    # Of those whose end was not answered some were sealed: they are on their way, too, or come again.
    for envelope_id in senders.doubtful:
        await answered(partial(asyncio.to_thread, _is_settled, url, envelope_id), "what was sealed is delivered")
    await asyncio.sleep(0.5)


def _is_settled(url: str, envelope_id: str) -> bool:
    summary = shown(url, envelope_id).summary
    return summary.state != "received" or all(role.state in ("done", "parked") for role in summary.roles)


async def _crash(daemon: Daemon) -> None:
    daemon.crash()
    await asyncio.to_thread(daemon.start)


async def _vanish(recipient: Any) -> None:
    """Kill a recipient with what it has not committed, and bring it back."""
    await recipient.leave()
    if isinstance(recipient, Books):
        recipient.open.clear()
    await asyncio.sleep(0.2)
    await recipient.__aenter__()
