"""The broker's start and end, and front and back as two processes."""

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon, Options, write_config
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker, close, connect
from tests.support.processes import run, script
from tests.support.showing import become
from tests.support.waiting import eventually

GRAPH = {"test_event": {"w": ["c"], "c": []}}


def refused(config: Path, *options: str) -> str:
    """The one line in which the broker says why it does not start."""
    result = run(script("start_xbusbroker"), "-c", config, *options)
    said = [line for line in result.stderr.splitlines() if line.startswith("start_xbusbroker: ")]
    assert result.returncode == 1, result
    assert len(said) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return said[0]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["front", "back"])
def test_an_address_in_use_is_refused(name: str, sqlite_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options: Options = {"zmq": {f"{name}socket": f"tcp://127.0.0.1:{port}"}}
        said = refused(write_config(tmp_path / "config.ini", sqlite_url, options))
    assert f"tcp://127.0.0.1:{port} is in use" in said
    assert "another port" in said


def test_a_second_broker_of_the_same_configuration_leaves_the_first_alone(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    taken = {"zmq": {"frontsocket": daemon.front, "backsocket": daemon.back}}
    assert "is in use" in refused(write_config(daemon.config.with_name("second.ini"), sqlite_url, taken))

    async def works() -> None:
        async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
            await consumer.wait_for([await emitter.emit(b"x")])

    asyncio.run(works())


@pytest.mark.parametrize("address", ["nonsense", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:99999", "http://*:1984"])
def test_a_bad_address_is_refused(address: str, sqlite_url: str, tmp_path: Path) -> None:
    said = refused(write_config(tmp_path / "config.ini", sqlite_url, {"zmq": {"frontsocket": address}}))
    assert address in said


@pytest.mark.parametrize("part", ["front", "back"])
def test_two_processes_on_sqlite_are_refused(part: str, sqlite_url: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", sqlite_url, {"zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}})
    assert "use PostgreSQL" in refused(config, "--only", part)


def test_two_processes_with_a_bell_inside_one_are_refused(postgres_url: str, tmp_path: Path) -> None:
    said = refused(write_config(tmp_path / "config.ini", postgres_url), "--only", "front")
    assert "b2fsocket" in said
    assert "ipc://" in said


def test_a_postgresql_that_does_not_wait_for_the_disk_is_refused(postgres_url: str, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", f"{postgres_url}?options=-csynchronous_commit%3Doff")
    assert "synchronous_commit" in refused(config)


# -- being ready -------------------------------------------------------------------------------------------------------


def test_the_ready_file_tells_where_it_listens(sqlite_url: str, start_daemon: StartDaemon) -> None:
    any_port = {f"{part}socket": "tcp://127.0.0.1:0" for part in ("front", "back")}
    daemon = start_daemon(sqlite_url, {"zmq": any_port})
    told = json.loads(daemon.config.with_name("ready.json").read_text())
    assert told == {"pid": daemon.pid, "front": daemon.front, "back": daemon.back}
    assert not daemon.front.endswith(":0")
    assert f"front at {daemon.front}" in daemon.log
    assert f"back at {daemon.back}" in daemon.log


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_broker_ends_at_once(number: signal.Signals, database_url: str, start_daemon: StartDaemon) -> None:
    # Longer than it is waited for here.
    daemon = start_daemon(database_url, {"daemon": {"stop_timeout": 3600}})
    daemon.process.signal(number)
    assert daemon.process.wait() == 0
    assert "action=stopped" in daemon.log
    assert "Traceback" not in daemon.log


@pytest.mark.parametrize("finishes", [True, False])
async def test_a_stop_lets_the_run_under_way_end_within_its_time(
    finishes: bool, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, {"daemon": {"stop_timeout": 3600 if finishes else 0.5}})
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        reached, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(*_: Any) -> Any:
            reached.set()
            await goes_on.wait()
            return True, None

        consumer.behave["send_item"] = slow
        envelope_id = await emitter.emit(b"x")
        behind = await emitter.emit(b"y")
        await eventually(reached.is_set, "the consumer is at work")
        stopping = asyncio.create_task(asyncio.to_thread(daemon.stop))
        if finishes:
            await eventually(lambda: "action=stopping" in daemon.log, "it is about to stop")
            assert not stopping.done()
            goes_on.set()
        assert await stopping == 0
        await become(sqlite_url, envelope_id, c_1="done" if finishes else "owed")
        assert (envelope_id in consumer.committed) is finishes
        if not finishes:
            await eventually(lambda: consumer.got("stop_envelope"), "it is told to forget it")
        goes_on.set()
        await asyncio.to_thread(daemon.start)
        await consumer.wait_for([envelope_id, behind])

    assert consumer.committed.count(envelope_id) == 1
    assert consumer.committed.count(behind) == 1


async def test_a_stop_under_load_loses_nothing_that_was_acknowledged(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    acknowledged: list[bytes] = []
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        hasty = await connect(daemon.front, timeout=2)

        async def send(number: int) -> None:
            item = b"%d" % number
            try:
                if await hasty.call.send_item(emitter.token, envelope_id, event_id, item):
                    acknowledged.append(item)
            except TimeoutError:
                pass  # it was on its way when the broker stopped

        async def send_on() -> None:
            for number in range(0, 100_000, 50):
                await asyncio.gather(*(send(n) for n in range(number, number + 50)))

        sending = asyncio.create_task(send_on())
        await eventually(lambda: len(acknowledged) > 1000, "it is in full swing")
        assert await asyncio.to_thread(daemon.stop) == 0
        await asyncio.to_thread(daemon.start)
        taken = len(acknowledged)
        await eventually(lambda: len(acknowledged) > taken + 1000, "it is in full swing again")
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await close(hasty)
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])

    got = consumer.items()
    assert len(got) == len(set(got))
    assert set(acknowledged) <= set(got)


# -- two processes -----------------------------------------------------------------------------------------------------


async def test_front_and_back_in_two_processes(postgres_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(postgres_url, GRAPH)
    options = {"zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}}
    back = start_daemon(postgres_url, options, only="back")
    front = start_daemon(postgres_url, options, only="front")
    async with (
        OldWorker(back.back, "w_1"),
        OldConsumer(back.back, "c_1") as consumer,
        OldEmitter(front.front) as emitter,
    ):
        took = [1.0]
        # Each is sent when the one before has come, so polling would find one in each of its intervals of a second.
        while min(took) > 0.5:
            assert len(took) <= 50, f"the bell does not ring: they were found by polling, in {took} seconds"
            sent_at = asyncio.get_running_loop().time()
            envelope_id = await emitter.emit(b"rung for")
            await consumer.wait_for([envelope_id])
            took.append(asyncio.get_running_loop().time() - sent_at)
        await become(postgres_url, envelope_id, c_1="done")  # what is not noted comes again after a crash

        # The back goes away: the front takes envelopes, which come when it is back.
        back.kill()
        away = [await emitter.emit(b"away %d" % n) for n in range(3)]
        await asyncio.to_thread(back.start)
        await consumer.wait_for(away)

        # The front goes away: what it took is delivered, the emitter goes on with what it had begun.
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"before")
        front.kill()
        await asyncio.to_thread(front.start)
        await emitter.send(envelope_id, event_id, b"after")
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])
        assert consumer.items(envelope_id) == [b"before w_1", b"after w_1"]

        # Both are stopped and started again, in the other order.
        for part in (front, back):
            assert await asyncio.to_thread(part.stop) == 0
        for part in (front, back):
            await asyncio.to_thread(part.start)
        last = await emitter.emit(b"last")
        await consumer.wait_for([last])

    rung_for = len(took) - 1
    assert len(consumer.committed) == len(set(consumer.committed)) == rung_for + 5


async def test_each_part_serves_its_own_alone(postgres_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    options = {"zmq": {"b2fsocket": f"ipc://{tmp_path}/f2b"}}
    front = start_daemon(postgres_url, options, only="front")
    back = start_daemon(postgres_url, options, only="back")
    assert set(_told(front)) == {"pid", "front"}
    assert set(_told(back)) == {"pid", "back"}


def _told(daemon: Daemon) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(daemon.config.with_name("ready.json").read_text())
    return told
