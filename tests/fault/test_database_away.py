"""PostgreSQL goes away in the midst of it: nothing is acknowledged that is not kept, and all goes on by itself."""

import asyncio
import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg2
import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support import postgres
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import write_config
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.ports import free_port
from tests.support.processes import Process, script
from tests.support.showing import become
from tests.support.waiting import DEADLINE_SECONDS, answered, eventually, wait_until
from xbus.emitter import AsyncEmitter


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_old_emitters_and_recipients_go_on_when_the_database_is_back(
    how: signal.Signals, cluster: postgres.Cluster, url: str, start_daemon: StartDaemon
) -> None:
    add_bus(url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        before = await emitter.emit(b"before")
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"0")
        enough, acknowledged = asyncio.Event(), list[bytes]()
        going_on = asyncio.create_task(_send_until(enough, acknowledged, emitter, envelope_id, event_id))
        await eventually(lambda: acknowledged, "it sends")
        await asyncio.to_thread(cluster.stop, how)
        assert await emitter.call.send_item(emitter.token, envelope_id, event_id, b"lost") is False
        assert await emitter.call.end_event(emitter.token, envelope_id, event_id) == (False, None)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is False
        assert await emitter.call.login("emitter_1", PASSWORD) == ""
        assert await consumer.call.register_node(consumer.token, consumer.uri) is False
        await asyncio.to_thread(cluster.start)
        start = partial(emitter.call.start_event, emitter.token, envelope_id, "test_event", 0)
        second = await answered(start, "events are taken again")
        enough.set()
        await going_on
        await emitter.send(envelope_id, event_id, b"last")
        await emitter.end(envelope_id, event_id, second)
        await consumer.wait_for([before, envelope_id])
        await become(url, envelope_id, c_1="done")
        after = await emitter.emit(b"after")
        await consumer.wait_for([after])

    got = [item.removesuffix(b" w_1") for item in consumer.items(envelope_id)]
    assert got[0] == b"0"
    assert got[-1] == b"last"
    assert [item for item in got if item in acknowledged] == acknowledged
    assert b"lost" not in got
    # What was refused at the moment of the loss may have been kept: the answer of the COMMIT was lost.
    assert len(got) == len(set(got))
    assert worker.items(after) == [b"after"]


async def _send_until(
    enough: asyncio.Event, acknowledged: list[bytes], emitter: OldEmitter, envelope_id: str, event_id: str
) -> None:
    """Send numbered items, each once, and note those that were acknowledged."""
    number = 0
    while not enough.is_set():
        number += 1
        item = b"item %d" % number
        if await emitter.call.send_item(emitter.token, envelope_id, event_id, item):
            acknowledged.append(item)
        else:
            await asyncio.sleep(0.05)


async def test_the_emitter_of_the_sdk_rides_it_out(
    cluster: postgres.Cluster, url: str, start_daemon: StartDaemon
) -> None:
    add_bus(url, {"test_event": {"c": []}})
    daemon = start_daemon(url)
    items = [b"%06d" % n for n in range(4_000)]
    async with (
        OldConsumer(daemon.back, "c_1") as consumer,
        AsyncEmitter(daemon.front, "emitter_1", PASSWORD, retry_seconds=DEADLINE_SECONDS) as emitter,
    ):
        async with emitter.envelope() as envelope:
            async with envelope.event("test_event") as event:
                for item in items[:1_000]:
                    await event.send(item)
                stopped = asyncio.create_task(asyncio.to_thread(_stop_and_start, cluster))
                for item in items[1_000:]:
                    await event.send(item)
                    if item.endswith(b"0"):
                        await asyncio.sleep(0.01)
                await stopped
        assert envelope.receipt.items == len(items)
        await consumer.wait_for([envelope.id])
    assert consumer.items(envelope.id) == items


async def test_what_was_opened_and_never_written_is_opened_again(
    cluster: postgres.Cluster, url: str, start_daemon: StartDaemon
) -> None:
    """An opening is answered at once, and promises nothing: with the database away it is forgotten."""
    add_bus(url, {"test_event": {"c": []}})
    daemon = start_daemon(url)
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD, retry_seconds=DEADLINE_SECONDS) as emitter:
        async with emitter.envelope() as envelope:
            async with envelope.event("test_event") as event:
                await event.send(b"0")
            await event.reply()
            await asyncio.to_thread(cluster.stop)
            async with envelope.event("test_event") as second:
                await eventually(lambda: "a write failed" in daemon.log, "the opening is lost")
                await asyncio.to_thread(cluster.start)
                await second.send(b"1")
        await asyncio.to_thread(cluster.stop)
        async with emitter.envelope() as other, other.event("test_event") as event:
            await eventually(lambda: "start_envelope refused" in daemon.log, "the opening is refused")
            await asyncio.to_thread(cluster.start)
            await event.send(b"2")
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for([envelope.id, other.id])
    assert consumer.items() == [b"0", b"1", b"2"]


def _stop_and_start(cluster: postgres.Cluster) -> None:
    cluster.stop()
    cluster.start()


async def test_delivery_goes_on_when_the_database_is_back(
    cluster: postgres.Cluster, url: str, start_daemon: StartDaemon
) -> None:
    add_bus(url, {"test_event": {"c": []}})
    daemon = start_daemon(url)
    async with OldEmitter(daemon.front) as emitter:
        sent = [await emitter.emit(b"%d" % n) for n in range(30)]
    async with OldConsumer(daemon.back, "c_1") as consumer:
        slow = asyncio.Semaphore(0)

        async def take(*_: object) -> object:
            await slow.acquire()
            return True, None

        consumer.behave["send_item"] = take
        for _ in range(5):
            slow.release()
        await consumer.wait_for(sent[:5])
        await asyncio.to_thread(cluster.stop)
        for _ in range(25):
            slow.release()
        await eventually(lambda: "action=journal_unread" in daemon.log, "what comes next can not be read")
        await asyncio.to_thread(cluster.start)
        await consumer.wait_for(sent)
        await become(url, sent[-1], c_1="done")

    assert consumer.committed == sent
    assert consumer.items() == [b"%d" % n for n in range(30)]


async def test_a_stop_without_the_database_ends_in_time(
    cluster: postgres.Cluster, url: str, start_daemon: StartDaemon
) -> None:
    """In the midst of sending, so that a commit may be under way of which nobody can tell what became of it."""
    add_bus(url, {"test_event": {"c": []}})
    daemon = start_daemon(url, {"daemon": {"stop_timeout": 2}})
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        await consumer.wait_for([await emitter.emit(b"x")])
        envelope_id, event_id = await emitter.start()
        enough, acknowledged = asyncio.Event(), list[bytes]()
        sending = [
            asyncio.create_task(_send_until(enough, acknowledged, emitter, envelope_id, event_id)) for _ in range(10)
        ]
        await eventually(lambda: len(acknowledged) > len(sending), "all send")
        await asyncio.to_thread(cluster.stop, signal.SIGQUIT)
        try:
            assert await asyncio.to_thread(daemon.stop) == 0
        finally:
            for task in sending:  # nobody will answer them
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await asyncio.to_thread(cluster.start)


def test_a_broker_that_starts_before_its_database_waits_for_it(
    cluster: postgres.Cluster, url: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "config.ini", url)
    cluster.stop()
    broker = Process(script("start_xbusbroker"), "-c", config, output=tmp_path / "log")
    try:
        wait_until(lambda: "the database is away, trying again in 2 s" in broker.text, "it waits")
        cluster.start()
        wait_until(lambda: "action=ready" in broker.text, "it serves")
        assert broker.stop() == 0
        assert "Traceback" not in broker.text
    finally:
        broker.kill()


def test_a_broker_that_can_not_write_yet_leaves_its_own_ports(
    postgres_url: str, start_process: StartProcess, tmp_path: Path
) -> None:
    """The schema can be read, and the journal can't be taken over: the ports are open by then."""
    add_bus(postgres_url, {"test_event": {"c": []}})
    zmq = {f"{side}socket": f"tcp://127.0.0.1:{free_port()}" for side in ("front", "back")}
    config, ready = write_config(tmp_path / "config.ini", postgres_url, {"zmq": zmq}), tmp_path / "ready.json"
    set_read_only(postgres_url, "on")
    broker = start_process(script("start_xbusbroker"), "-c", config, "--ready-file", ready)
    wait_until(lambda: broker.text.count("action=database_away") >= 2 or not broker.runs, "it tries again")
    assert broker.runs, broker.text
    set_read_only(postgres_url, "off")
    wait_until(ready.exists, "it serves")


def set_read_only(url: str, value: str) -> None:
    with closing(
        psycopg2.connect(url.replace("+psycopg2", ""), options="-c default_transaction_read_only=off")
    ) as connection:
        connection.autocommit = True
        name = connection.info.dbname
        connection.cursor().execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
