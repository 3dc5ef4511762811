"""The broker is killed at the worst moments, and started again: what it acknowledged is delivered."""

import asyncio
from functools import partial
from itertools import dropwhile
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.showing import become
from tests.support.waiting import eventually

GRAPH = {"test_event": {"w": ["c"], "c": []}}


async def crash(daemon: Daemon) -> None:
    """Kill the broker, examine its journal and start it again, while the clients of the test live on."""
    daemon.crash()
    await asyncio.to_thread(daemon.start)


async def test_what_was_acknowledged_of_an_open_envelope_survives(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    async with (
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id, event_id = await emitter.start()
        ended = await emitter.start_event(envelope_id)
        await emitter.send(envelope_id, event_id, b"0", b"1")
        await emitter.send(envelope_id, ended, b"a")
        await emitter.end_event(envelope_id, ended)
        await crash(daemon)
        # The emitter doesn't notice: same token, same ids. Neither do the recipients.
        await emitter.send(envelope_id, event_id, b"2")
        assert await emitter.call.send_item(emitter.token, envelope_id, ended, b"b") is False
        await crash(daemon)
        assert await emitter.call.end_envelope(emitter.token, envelope_id) is False
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])

    assert consumer.items() == [b"0 w_1", b"1 w_1", b"2 w_1", b"a w_1"]
    assert consumer.got("stop_envelope") == []


async def test_an_old_client_goes_on_behind_a_crash_after_each_of_its_calls(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter:
        # What only begins promises nothing: it may be gone, and then the client is told so.
        begun, event_id = await emitter.start()
        await crash(daemon)
        if await emitter.call.send_item(emitter.token, begun, event_id, b"0") is False:
            begun, event_id = await emitter.start()
            await emitter.send(begun, event_id, b"0")
        await crash(daemon)
        await emitter.send(begun, event_id, b"1")
        await emitter.end_event(begun, event_id)
        await crash(daemon)
        # A repeat of a call whose answer was lost gets that answer.
        await emitter.end_event(begun, event_id)
        assert await emitter.call.end_envelope(emitter.token, begun) is True
        await crash(daemon)
        assert await emitter.call.end_envelope(emitter.token, begun) is True
        async with OldWorker(daemon.back, "w_1"), OldConsumer(daemon.back, "c_1") as consumer:
            await consumer.wait_for([begun])

    assert consumer.items() == [b"0 w_1", b"1 w_1"]


async def test_a_sealed_envelope_is_delivered_after_a_crash(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter:
        sent = [await emitter.emit(b"%d" % n) for n in range(3)]
        cancelled, _ = await emitter.start()
        assert await emitter.call.cancel_envelope(emitter.token, cancelled) is True
    await crash(daemon)
    async with OldWorker(daemon.back, "w_1"), OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for(sent)

    assert consumer.committed == sent
    assert consumer.items() == [b"0 w_1", b"1 w_1", b"2 w_1"]


@pytest.mark.parametrize("at", ["start_event", "send_item", "end_event", "end_envelope"])
@pytest.mark.parametrize("who", ["worker", "consumer"])
async def test_a_run_that_a_crash_broke_off_comes_again(
    at: str, who: str, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    await _crash_in_a_run(sqlite_url, start_daemon, at, who)


async def test_a_run_that_a_crash_broke_off_comes_again_on_postgresql(
    postgres_url: str, start_daemon: StartDaemon
) -> None:
    await _crash_in_a_run(postgres_url, start_daemon, "send_item", "consumer")


async def _crash_in_a_run(url: str, start_daemon: StartDaemon, at: str, who: str) -> None:
    add_bus(url, GRAPH)
    daemon = start_daemon(url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        before = await emitter.emit(b"before")
        # Its cursor is written a little later, and until then it may come again.
        await become(url, before, c_1="done")
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def hold(*args: Any) -> Any:
            reached.set()
            await go_on.wait()
            return True, None

        held = worker if who == "worker" else consumer
        held.behave[at] = hold
        envelope_id = await emitter.emit(b"x", b"y")
        behind = await emitter.emit(b"behind")
        await eventually(reached.is_set, "the run is where it is to break off")
        calls_before = {recipient: len(recipient.calls) for recipient in (worker, consumer)}
        daemon.crash()
        held.behave.clear()
        go_on.set()
        await asyncio.to_thread(daemon.start)
        await consumer.wait_for([behind])
        for recipient in (worker, consumer):
            comes_again = partial(has_come_again, recipient, calls_before, envelope_id)
            await eventually(comes_again, f"it comes again to {recipient.login}")

    for recipient in (worker, consumer):
        calls = again(recipient, calls_before, envelope_id)
        assert calls[0] == "stop_envelope"
        assert [verb for verb in calls if verb != "stop_envelope"] == [
            "start_event",
            "send_item",
            "send_item",
            "end_event",
            "end_envelope",
        ]
    assert consumer.items(envelope_id)[-2:] == [b"x w_1", b"y w_1"]
    assert consumer.verbs(behind).count("end_envelope") == 1
    assert consumer.verbs(before).count("end_envelope") == 1


def has_come_again(recipient: Any, calls_before: dict[Any, int], envelope_id: str) -> bool:
    return "end_envelope" in again(recipient, calls_before, envelope_id)


def again(recipient: Any, calls_before: dict[Any, int], envelope_id: str) -> list[str]:
    """The calls for an envelope that came when the broker was back.

    What the former one had sent ahead is read only now, perhaps: it is not called again before a stop, or a new start.
    """
    calls = [call[0] for call in recipient.calls[calls_before[recipient] :] if call[1:2] == (envelope_id,)]
    return list(dropwhile(lambda verb: verb not in ("stop_envelope", "start_event"), calls))


async def test_what_was_delivered_long_before_a_crash_does_not_come_again(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": [], "d": []}})
    daemon = start_daemon(database_url)
    async with (
        OldConsumer(daemon.back, "c_1") as present,
        OldEmitter(daemon.front) as emitter,
    ):
        first = [await emitter.emit(b"%d" % n) for n in range(5)]
        await present.wait_for(first)
        await become(database_url, first[-1], c_1="done", d_1="owed")
        for _ in range(3):
            await crash(daemon)
        async with OldConsumer(daemon.back, "d_1") as late:
            second = [await emitter.emit(b"%d" % n) for n in range(5, 8)]
            await present.wait_for(second)
            await late.wait_for(first + second)

    assert present.items() == [b"%d" % n for n in range(8)]
    assert late.items() == [b"%d" % n for n in range(8)]
    assert late.committed == first + second


async def test_sessions_and_registrations_outlive_a_crash_and_end_with_a_logout(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        async with OldEmitter(daemon.front, "emitter_2") as other:
            assert await other.call.logout(other.token) is True
            await crash(daemon)
            assert await other.call.start_envelope(other.token) == ""
        sent = await emitter.emit(b"x")
        await consumer.wait_for([sent])
        assert await consumer.call.logout(consumer.token) is True
        await crash(daemon)
        await emitter.emit(b"y")
        assert await consumer.register() is False
        with pytest.raises(AssertionError, match="did not happen"):
            await eventually(lambda: consumer.items() != [b"x"], "what must not come", timeout=1)
