"""A role that wants order, and bad items that are parked alone: with the real daemon, killed in the midst of it."""

import asyncio
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.operating import xbus
from tests.support.showing import become
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.database.connection import reading, writing
from xbus.emitter import AsyncEmitter


def refuse(*bad: bytes) -> Any:
    """Refuses these items by their indices."""
    return lambda envelope_id, event_id, indices, data: (False, [(indices, "bad")]) if data in bad else (True, None)


def want(url: str, statement: sa.Update) -> None:
    with writing(url) as connection:
        connection.execute(statement)


async def resume(daemon: Daemon, envelope_id: str) -> None:
    await xbus(daemon, "parked", "resume", envelope_id)


async def test_a_parked_key_holds_only_itself_and_goes_on_in_order(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    want(sqlite_url, sa.update(model.role).values(ordered=True))
    daemon = start_daemon(sqlite_url)
    consumer = OldConsumer(daemon.back, "c_1")
    consumer.behave["send_item"] = refuse(b"a1")
    sent: dict[bytes, str] = {}

    async def put(*items: bytes) -> None:
        for item in items:
            receipt = await emitter.put("test_event", [item], ordering_key=item[:1].decode())
            sent[item] = str(receipt.envelope_id)

    def committed() -> list[bytes]:
        """The items of what was committed, in that order, each once."""
        names = {envelope_id: item for item, envelope_id in sent.items()}
        return [names[envelope_id] for envelope_id in dict.fromkeys(consumer.committed)]

    async with consumer, AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        await put(b"a1", b"b1", b"a2")
        await become(sqlite_url, sent[b"a1"], c_1="parked")
        await become(sqlite_url, sent[b"a2"], c_1="held")
        await consumer.wait_for([sent[b"b1"]])
        consumer.behave["end_event"] = lambda *_: asyncio.sleep(3600)
        await put(b"b2", b"a3", b"b3")
        await eventually(lambda: b"b2" in consumer.items(), "b2 is on its way")
        daemon.kill()
        del consumer.behave["end_event"]
        await asyncio.to_thread(daemon.start)
        await put(b"a4", b"b4")
        await consumer.wait_for([sent[item] for item in (b"b2", b"b3", b"b4")])
        await become(sqlite_url, sent[b"a1"], c_1="parked")
        await become(sqlite_url, sent[b"a4"], c_1="held")
        assert committed() == [b"b1", b"b2", b"b3", b"b4"]
        del consumer.behave["send_item"]
        await resume(daemon, sent[b"a1"])
        await consumer.wait_for(sent.values())
    assert committed()[4:] == [b"a1", b"a2", b"a3", b"a4"]


async def test_bad_items_are_parked_alone_and_the_rest_is_delivered(
    postgres_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(postgres_url, {"test_event": {"w": ["c"], "c": [], "d": []}})
    want(postgres_url, sa.update(model.event_type).values(bad_items="isolate", max_isolated=3))
    daemon = start_daemon(postgres_url)
    worker, consumer, other = (
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "c_1"),
        OldConsumer(daemon.back, "d_1"),
    )
    worker.behave["send_item"] = lambda *call: refuse(b"1")(*call) if call[3] == b"1" else worker.do_send_item(*call)
    consumer.behave["send_item"] = refuse(b"3 w_1")
    async with worker, consumer, other, OldEmitter(daemon.front) as emitter:
        envelope_id = await emitter.emit(*(b"%d" % number for number in range(5)))
        await become(postgres_url, envelope_id, c_1="done", d_1="done")
        assert consumer.items(envelope_id)[-3:] == [b"0 w_1", b"2 w_1", b"4 w_1"]
        assert other.items(envelope_id)[-5:] == [b"0", b"1", b"2", b"3", b"4"]
        too_many = await emitter.emit(b"1", b"1", b"1", b"1")
        await become(postgres_url, too_many, c_1="parked")
    with reading(postgres_url) as connection:
        item = model.parked_item.c
        columns = sa.select(item.item_index, item.cause, model.role.c.login).join(model.role)
        found = connection.execute(columns.where(item.envelope_id == UUID(envelope_id))).all()
    assert sorted(found) == [(1, "bad", "c_1"), (3, "bad", "c_1")]
