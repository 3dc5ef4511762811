"""``xbus why`` against the real broker: what only its memory knows, and what it says while the broker is away."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldEmitter
from tests.support.serving import serving
from tests.support.waiting import answered, eventually
from xbus import model
from xbus.admin.cli import main
from xbus.broker.journal.database.connection import writing
from xbus.emitter import AsyncEmitter
from xbus.errors import Failed, Refused
from xbus.recipient import Consumer, Envelope, Event, Item, Worker
from xbus.rpc.codec import pack_items

LARGE = 100_000
"""Bytes of an item whose envelope travels alone."""


class Gate(Consumer):
    """Commits when the gate is open, and fails while it is told to."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.reached = False
        self.fails = False

    async def on_event_end(self, event: Event) -> None:
        self.reached = True
        await self.opened.wait()

    def commit(self, envelope: Envelope) -> None:
        if self.fails:
            raise Failed("the store is closed")


class SlowWorker(Worker):
    """Passes items on when the gate is open."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def on_item(self, event: Event, item: Item) -> AsyncIterator[Any]:
        await self.opened.wait()
        yield item.value


async def why(daemon: Daemon, *question: object) -> list[dict[str, Any]]:
    """The answers to a question, in this process: its clients go on meanwhile."""
    command = ["why", *map(str, question), "-c", str(daemon.config), "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


async def becomes(daemon: Daemon, code: str, *question: object, **proof: object) -> dict[str, Any]:
    """Wait until the answer to a question has a code, and this in its proof, and give it."""
    seen: list[str] = []

    async def ask() -> dict[str, Any]:
        answer = (await why(daemon, *question))[0]
        seen.append(answer["cause"])
        return answer if answer["code"] == code and proof.items() <= answer["proof"].items() else {}

    try:
        return await answered(ask, f"{question} is {code}")
    except AssertionError as error:
        raise AssertionError(f"it is this instead: {seen[-1]}") from error


async def put(daemon: Daemon, event_type: str, number: int = 1, *, key: str | None = None, size: int = 1) -> list[str]:
    """Send envelopes of one item each, and give their ids."""
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        receipts = [await emitter.put(event_type, [b"x" * size], ordering_key=key) for _ in range(number)]
    return [str(receipt.envelope_id) for receipt in receipts]


async def test_slots_keys_and_a_breaker(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"direct": {"c": []}})
    settings = {"trouble_after": 2, "probe_interval": 3600, "first_delay": 0.01, "attempts": 9}
    daemon = start_daemon(sqlite_url, {"back": settings})
    (first,) = await put(daemon, "direct")
    absent = await becomes(daemon, "role_absent", first)
    assert absent["next_step"] == "start the recipient of c_1"
    gate = Gate()
    async with serving(daemon, "c_1", gate):
        await eventually(lambda: gate.reached, "the consumer is asked")
        at_work = await becomes(daemon, "under_way", first)
        assert (at_work["proof"]["at_login"], at_work["role"]) == ("c_1", "c_1")
        assert at_work["proof"]["verb"]
        more = await put(daemon, "direct", 30)
        await becomes(daemon, "slots_taken", more[-1])
        await becomes(daemon, "role_behind", "--role", "c_1")
        gate.opened.set()
        await becomes(daemon, "delivered", more[-1])
        await becomes(daemon, "role_well", "--role", "c_1")

        gate.fails = True
        failing = await put(daemon, "direct", 3)
        await becomes(daemon, "role_tripped", "--role", "c_1")
        tripped = await becomes(daemon, "role_tripped", failing[-1])
        assert tripped["proof"]["until_at"] is not None
    assert daemon.stop() == 0
    assert (await why(daemon, failing[-1]))[0]["code"] == "back_unreachable"
    assert (await why(daemon, "--emitter", "emitter_1"))[0]["code"] == "front_unreachable"


async def test_workers_on_the_way(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"through": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url, {"back": {"worker_grace": 3600}})
    worker, gate = SlowWorker(), Gate()
    gate.opened.set()
    async with serving(daemon, "c_1", gate):
        (first,) = await put(daemon, "through")
        grace = await becomes(daemon, "worker_grace", first)
        assert grace["proof"]["service"] == "w"
        async with serving(daemon, "w_1", worker):
            # The consumer hears of the event, too, before the worker has its items.
            await becomes(daemon, "under_way", first, at_login="w_1")
            last = (await put(daemon, "through", 30))[-1]
            await becomes(daemon, "worker_busy", last)
            worker.opened.set()
            await becomes(daemon, "delivered", last)


async def test_an_ordered_role_with_several_programs(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """One of them has an envelope of the key in hand, so the other is free and gets nothing."""
    add_bus(sqlite_url, {"direct": {"c": []}})
    with writing(sqlite_url) as connection:
        connection.execute(sa.update(model.role).values(instances=2, ordered=True))
    daemon = start_daemon(sqlite_url)
    gates = [Gate(), Gate()]
    async with serving(daemon, "c_1", gates[0]), serving(daemon, "c_1", gates[1]):
        (first,) = await put(daemon, "direct", key="ada")
        await becomes(daemon, "under_way", first)
        (second,) = await put(daemon, "direct", key="ada")
        answer = await becomes(daemon, "key_in_hand", second)
        assert answer["proof"]["other_id"] == first
        for gate in gates:
            gate.opened.set()
        await becomes(daemon, "delivered", second)


async def test_roles_that_go_together(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """One that is free waits for another that has its hands full; large envelopes travel alone."""
    add_bus(sqlite_url, {"alone": {"c": []}, "both": {"c": [], "d": []}})
    daemon = start_daemon(sqlite_url, {"back": {"behind_after": 3600}})
    slow, quick = Gate(), Gate()
    quick.opened.set()
    async with serving(daemon, "c_1", slow), serving(daemon, "d_1", quick):
        await eventually(lambda: daemon.log.count("recipient registered") == 2, "both are there")
        await put(daemon, "alone", 8, size=LARGE)
        (last,) = await put(daemon, "both", size=LARGE)
        answer = await becomes(daemon, "held_up", last, "--role", "d_1")
        assert answer["proof"]["at_login"] == "c_1"
        slow.opened.set()
        await becomes(daemon, "delivered", last)


async def test_an_envelope_that_the_front_refused(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """By its key, though nothing of it was kept; and one whose emitter gave up then."""
    add_bus(sqlite_url, {"direct": {"c": []}, "forbidden": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter:
        whole = [[str(uuid.uuid4()), "forbidden", 1, pack_items([b"x"])]]
        with pytest.raises(Exception, match="type_not_allowed"):
            await emitter.call.xbus.put_envelope(emitter.token, str(uuid.uuid4()), whole, {"key": "order 1"})
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as again:
        with pytest.raises(Refused):
            async with again.envelope(key="order 2") as envelope, envelope.event("forbidden") as event:
                await event.send(b"x")

    async def of_key(key: str) -> list[str]:
        return [answer["code"] for answer in await why(daemon, "--emitter", "emitter_1", "--key", key)]

    assert await of_key("order 1") == ["refused", "unknown_key"]
    assert await of_key("order 2") == ["cancelled", "refused"]
    assert await of_key("order 3") == ["unknown_key"]
