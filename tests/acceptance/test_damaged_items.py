"""A damaged item is parked and told of: nobody gets what a bad disk made of it."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.journal import change_segments
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_xbus, xbus
from tests.support.showing import become, progress
from tests.support.waiting import answered
from xbus import model
from xbus.broker.journal.database.connection import writing
from xbus.reader import AsyncReader
from xbus.rpc.codec import pack_items

WHOLE, WORSE = b"1000 EUR", b"9000 EUR"


def change(url: str, before: bytes, after: bytes) -> str:
    """Change the one item of an event past the bus; the id of the event."""
    with writing(url) as connection:
        rows = connection.execute(sa.select(model.log_segment.c.event_id, model.log_segment.c.data)).all()
        (event_id,) = [row.event_id for row in rows if before in bytes(row.data)]
        change_segments(connection, [event_id], data=pack_items([after]))
    return str(event_id)


async def test_a_damaged_item_is_parked_and_others_are_delivered(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter:
        before = await emitter.emit(b"2000 EUR")
        damaged = await emitter.emit(WHOLE)
        after = await emitter.emit(b"3000 EUR")
    daemon.stop()
    event_id = change(database_url, WHOLE, WORSE)
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for([before, after])
        await become(database_url, damaged, c_1="parked")
        assert consumer.committed == [before, after]
    parked = progress(database_url, damaged)["c_1"]
    assert parked.code == "segment_damaged"
    assert event_id in str(parked.cause)
    health = await run_xbus(daemon, "health")
    assert "segment_damaged" in health.stdout


async def test_a_reader_goes_on_behind_damaged_items_and_gets_them_when_they_are_whole(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    add_reader(database_url, "audit", "test_event", ranges=1)
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter:
        for item in (b"2000 EUR", WHOLE, b"3000 EUR"):
            await emitter.emit(item)
    daemon.stop()
    event_id = change(database_url, WHOLE, WORSE)
    daemon = start_daemon(database_url, {"health": {"interval": 0.1}})
    async with AsyncReader(daemon.back, "audit_1", PASSWORD) as reader:
        read: list[bytes] = []

        async def read_until(count: int) -> None:
            while len(read) < count:
                batch = await reader.next_batch()
                read.extend(item.data for item in batch)
                batch.done()

        await read_until(2)
        assert read == [b"2000 EUR", b"3000 EUR"]
        parked = json.loads(await xbus(daemon, "parked", "batch", "list", "--reader", "audit", "-o", "json"))
        assert (parked["subscription"], parked["reader"], parked["code"]) == (None, "audit", "segment_damaged")
        assert event_id in parked["cause"]

        async def health_tells() -> bool:
            return {"segment_damaged", "batches_parked"} <= set((await run_xbus(daemon, "health")).stdout.split())

        await answered(health_tells, "health tells of both")
        change(database_url, WORSE, WHOLE)
        assert "audit gets" in await xbus(daemon, "parked", "batch", "resume", parked["batch"])
        await read_until(3)
        assert read[2] == WHOLE
    assert await xbus(daemon, "parked", "batch", "list", "-o", "json") == ""


async def test_a_front_of_its_own_tells_health_of_damage_that_it_met(
    postgres_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(postgres_url, {"test_event": {"c": []}})
    bell = {"zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}}
    front = start_daemon(postgres_url, bell, only="front")
    back = start_daemon(postgres_url, bell, only="back")
    async with OldEmitter(front.front) as emitter:
        token = emitter.token
        envelope_id, event_id = await emitter.start()
        send = emitter.call.xbus.send_items
        assert await send(token, envelope_id, event_id, 0, 1, pack_items([WHOLE])) == 1
        assert (await run_xbus(front, "health", "--url", front.front)).returncode == 0
        assert change(postgres_url, WHOLE, WORSE) == event_id
        # The front compares a repeated call with what is stored.
        with pytest.raises(Exception, match="segment_damaged"):
            await send(token, envelope_id, event_id, 0, 1, pack_items([WHOLE]))
    health = await run_xbus(front, "health", "--url", front.front)
    assert health.returncode == 1
    assert "segment_damaged" in health.stdout
    assert event_id in health.stdout
    assert "segment_damaged" not in (await run_xbus(front, "health", "--url", back.back)).stdout
