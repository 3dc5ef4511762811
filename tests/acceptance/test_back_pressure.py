"""Emitters and recipients of different speed: all get everything, nobody fills the broker's memory."""

import asyncio
import os
import sqlite3
import uuid
from contextlib import closing
from typing import Any

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Options
from tests.support.memory import peak_mib, resident_mib
from tests.support.old_clients import OldConsumer, OldEmitter, share_runs
from tests.support.waiting import DEADLINE_SECONDS, eventually
from xbus.emitter import AsyncEmitter
from xbus.rpc.client import Client
from xbus.rpc.codec import pack_items
from xbus.rpc.context import new_context

ITEM_BYTES = 250_000
ENVELOPES = 90


async def test_a_slow_consumer_costs_neither_the_others_their_pace_nor_the_broker_its_memory(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"a": [], "b": [], "c": []}})
    behind: Options = {"back": {"behind_after": 2, "window_bytes": 4 * ITEM_BYTES, "send_item_timeout": 600}}
    daemon = start_daemon(sqlite_url, behind)
    others_have_all = asyncio.Event()

    async with (
        OldConsumer(daemon.back, "a_1") as a,
        OldConsumer(daemon.back, "b_1") as b,
        OldConsumer(daemon.back, "c_1") as c,
        OldEmitter(daemon.front) as old_emitter,
    ):
        await share_runs(old_emitter, [a, b, c])
        idle = resident_mib(daemon.pid)

        async def take_slowly(envelope_id: str, *_: Any) -> Any:
            """Longer than one may hold the others up; what those have had already has time until they have all."""
            await asyncio.sleep(0.6)
            if envelope_id in a.committed and envelope_id in b.committed:
                await others_have_all.wait()
            return True, None

        c.behave["send_item"] = take_slowly
        sent = await emit(daemon.front, ENVELOPES)
        await asyncio.gather(a.wait_for(sent), b.wait_for(sent))
        assert len(c.committed) < 30
        assert "recipient is behind" in daemon.log
        assert peak_mib(daemon.pid) < idle + ENVELOPES * 4 * ITEM_BYTES / 2**20 / 2

        others_have_all.set()
        del c.behave["send_item"]
        await c.wait_for(sent)
        await eventually(lambda: "recipient has caught up" in daemon.log, "it goes on with the others")
        last = await old_emitter.emit(b"x")
        await asyncio.gather(*(each.wait_for([last]) for each in (a, b, c)))
    for consumer in (a, b, c):
        assert sorted(consumer.committed[: len(sent)]) == sorted(sent)


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
    daemon = start_daemon(sqlite_url, {"journal": {"max_pending_bytes": 4 * ITEM_BYTES, "answer_timeout": 600}})
    context = new_context()
    client = Client(context, name="emitter")
    client.connect(daemon.front)
    try:
        token = await logged_in(client)
        idle = resident_mib(daemon.pid)
        calls = 400
        with closing(
            sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None, timeout=DEADLINE_SECONDS)
        ) as other:
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


async def logged_in(client: Client) -> str:
    told: Any = await client.call("xbus.login", "emitter_1", PASSWORD, timeout=DEADLINE_SECONDS)
    return str(told["token"])


async def put(client: Client, token: str) -> int:
    event = [str(uuid.uuid4()), "test_event", 1, pack_items([bytes(ITEM_BYTES)])]
    receipt: Any = await client.call("xbus.put_envelope", token, str(uuid.uuid4()), [event], timeout=600)
    return int(receipt["position"])
