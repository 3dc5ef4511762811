"""Emitters and recipients of different speed: all get everything, nobody fills the broker's memory."""

import asyncio
import os
import sqlite3
import uuid
from contextlib import closing
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.memory import peak_mib, resident_mib
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from xbus.emitter import AsyncEmitter
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import new_context

ITEM_BYTES = 250_000


async def test_a_slow_consumer_costs_neither_the_others_their_pace_nor_the_broker_its_memory(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["a", "b", "c"], "a": [], "b": [], "c": []}})
    daemon = start_daemon(sqlite_url, {"back": {"behind_after": 0.5, "window_bytes": 4 * ITEM_BYTES}})
    slow = asyncio.Semaphore(0)

    async def take_slowly(*_: Any) -> Any:
        await slow.acquire()
        return True, None

    async with (
        OldWorker(daemon.back, "w_1", lambda indices, data: [(indices, data)]) as worker,
        OldConsumer(daemon.back, "a_1") as a,
        OldConsumer(daemon.back, "b_1") as b,
        OldConsumer(daemon.back, "c_1") as c,
        OldEmitter(daemon.front) as old_emitter,
    ):
        await a.wait_for([first := await emit_one(old_emitter, c, slow)])
        idle = resident_mib(daemon.pid)
        c.behave["send_item"] = take_slowly
        sent = await emit(daemon.front, envelopes=60)
        await asyncio.gather(a.wait_for(sent), b.wait_for(sent))
        assert len(c.committed) < 10
        assert "recipient is behind" in daemon.log
        assert peak_mib(daemon.pid) < idle + 60 * 4 * ITEM_BYTES / 2**20 / 2

        del c.behave["send_item"]
        for _ in range(10):
            slow.release()
        await c.wait_for(sent)
        # Once it is with the others again, the worker works once for all of them.
        while runs_of(worker, last := await old_emitter.emit(b"x")) > 1:
            pass
        await asyncio.gather(*(each.wait_for([last]) for each in (a, b, c)))
    for consumer in (a, b, c):
        assert sorted(consumer.committed[: len(sent) + 1]) == sorted([first, *sent])


async def emit_one(emitter: OldEmitter, slowest: OldConsumer, _: asyncio.Semaphore) -> str:
    envelope_id = await emitter.emit(b"x")
    await slowest.wait_for([envelope_id])
    return envelope_id


def runs_of(worker: OldWorker, envelope_id: str) -> int:
    return worker.verbs(envelope_id).count("end_envelope")


async def emit(front: str, envelopes: int) -> list[str]:
    """Envelopes of four large items."""
    sent = []
    async with AsyncEmitter(front, "emitter_1", PASSWORD) as emitter:
        for _ in range(envelopes):
            async with emitter.envelope() as envelope, envelope.event("test_event") as event:
                for _ in range(4):
                    await event.send(os.urandom(ITEM_BYTES))
            sent.append(envelope.id)
    return sent


async def test_an_emitter_that_is_faster_than_the_disk_is_slowed_down(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """While another process keeps the file for itself everything piles up: at its sender."""
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, {"journal": {"max_pending_bytes": 4 * ITEM_BYTES}})
    context = new_context()
    client = Client(context, name="emitter")
    client.connect(daemon.front)
    try:
        token = (await client.call("xbus.login", "emitter_1", PASSWORD, timeout=30))["token"]
        idle = resident_mib(daemon.pid)
        calls = 400
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answers = [asyncio.ensure_future(put(client, token)) for _ in range(calls)]
            await asyncio.sleep(1)
            assert not any(answer.done() for answer in answers)
            other.execute("ROLLBACK")
        positions = await asyncio.gather(*answers)
        assert sorted(positions) == list(range(1, calls + 1))
        assert peak_mib(daemon.pid) < idle + calls * ITEM_BYTES / 2**20 / 2
    finally:
        client.close()
        context.destroy(linger=0)


async def put(client: Client, token: str) -> int:
    event = [str(uuid.uuid4()), "test_event", 1, pack_items([bytes(ITEM_BYTES)])]
    receipt = await client.call("xbus.put_envelope", token, str(uuid.uuid4()), [event], timeout=60)
    return int(receipt["position"])
