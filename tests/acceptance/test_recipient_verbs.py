"""The back's verbs of ``docs/wire.md`` as aiozmq calls them: each with its answer, and all its refusals."""

import asyncio
from functools import partial
from itertools import groupby
from typing import Any

import aiozmq.rpc
import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker, close, connect
from tests.support.showing import become
from tests.support.waiting import answered, eventually

SESSION_SECONDS = 4
"""Longer than anything takes from a login to the first call after it."""


async def is_unknown(consumer: OldConsumer) -> bool:
    """Whether its session has ended; one that has not asks whether it is registered."""
    try:
        await consumer.call.xbus.heartbeat(consumer.token)
    except aiozmq.rpc.GenericError:
        return True
    return False


async def test_login_and_logout(shared: Daemon) -> None:
    client = await connect(shared.back)
    token = await client.call.login("c_1", PASSWORD)
    assert isinstance(token, str)
    assert token
    for login, password in [("c_1", "wrongpass"), ("nobody", PASSWORD), ("emitter_1", PASSWORD), ("", "")]:
        assert await client.call.login(login, password) == ""
    assert await client.call.logout(token) is True
    assert await client.call.logout(token) is False
    assert await client.call.ready(token) is False
    assert await client.call.register_node(token, "tcp://127.0.0.1:1") is False
    assert token not in shared.log
    await close(client)


async def test_tokens_of_one_side_are_worth_nothing_at_the_other(shared: Daemon) -> None:
    front, back = await connect(shared.front), await connect(shared.back)
    emitters = await front.call.login("emitter_1", PASSWORD)
    roles = await back.call.login("c_1", PASSWORD)
    assert await front.call.start_envelope(roles) == ""
    assert await back.call.ready(emitters) is False
    assert await back.call.logout(emitters) is False
    assert await front.call.start_envelope(emitters)
    await close(front)
    await close(back)


async def test_a_registration_asks_the_recipient_who_it_is(shared: Daemon) -> None:
    async with OldConsumer(shared.back, "c_1") as consumer:
        assert [call[0] for call in consumer.calls] == ["get_metadata", "has_clearing", "has_immediate_reply"]
        assert await consumer.call.ready(consumer.token) is True
        assert await consumer.register() is True
        assert await consumer.call.register_node("nothing", consumer.uri) is False


async def test_ready_before_a_registration_is_refused(shared: Daemon) -> None:
    consumer = OldConsumer(shared.back, "c_1")
    await consumer.serve()
    assert await consumer.call.ready(consumer.token) is False
    await consumer.leave()


async def test_who_logs_out_gets_nothing_more(shared: Daemon) -> None:
    async with OldConsumer(shared.back, "c_1") as consumer, OldEmitter(shared.front) as emitter:
        first = await emitter.emit(b"1")
        await consumer.wait_for([first])
        assert await consumer.call.logout(consumer.token) is True
        second = await emitter.emit(b"2")
        with pytest.raises(AssertionError, match="did not happen"):
            await consumer.wait_for([second], timeout=0.5)
        async with OldConsumer(shared.back, "c_1") as successor:
            await successor.wait_for([second])


async def test_an_answer_that_comes_behind_the_farewell_counts(shared: Daemon) -> None:
    """It comes by another connection, so who has committed and leaves must not get that again.

    Another test's consumer may have left before its answer went: that envelope is redelivered here, before or behind.
    """
    async with OldConsumer(shared.back, "c_1") as consumer, OldEmitter(shared.front) as emitter:
        reached, has_left = asyncio.Event(), asyncio.Event()
        sent, event_id = await emitter.start()

        async def commit(envelope_id: str) -> Any:
            if envelope_id == sent:
                reached.set()
                await has_left.wait()
            return True, None

        consumer.behave["end_envelope"] = commit
        await emitter.end(sent, event_id)
        await eventually(reached.is_set, "it is about to commit")
        farewells = shared.log.count("action=logout role_id")
        logout = asyncio.ensure_future(consumer.call.logout(consumer.token))
        await eventually(
            lambda: shared.log.count("action=logout role_id") > farewells, "the broker has heard the farewell"
        )
        has_left.set()
        assert await logout is True
        await become(shared.url, sent, c_1="done")


async def test_a_session_expires_but_never_under_a_registration(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}}, {"c": 2})
    daemon = start_daemon(sqlite_url, {"back": {"session_seconds": SESSION_SECONDS}})
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        leaver = OldConsumer(daemon.back, "c_2")
        await leaver.serve()
        await asyncio.sleep(SESSION_SECONDS + 0.2)
        assert await leaver.register() is False
        await leaver.leave()
        sent = await emitter.emit(b"x")
        await consumer.wait_for([sent])
        assert await worker.call.ready(worker.token) is True
        assert await consumer.register() is True


async def test_a_logout_ends_the_registration_of_its_own_session_alone(shared: Daemon) -> None:
    async with OldConsumer(shared.back, "c_1") as consumer, OldEmitter(shared.front) as emitter:
        client = await connect(shared.back)
        second = await client.call.login("c_1", PASSWORD)
        assert await client.call.logout(second) is True
        await close(client)
        await consumer.wait_for([await emitter.emit(b"x")])


async def test_the_recipient_api_is_called_as_it_is_written(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """Types and values of what the broker hands over, as recipients of the old generation check them."""
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"\x00\xff", b"")
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])

    expected: list[tuple[Any, ...]] = [
        ("start_event", envelope_id, event_id, "test_event"),
        ("send_item", envelope_id, event_id, [0], b"\x00\xff"),
        ("send_item", envelope_id, event_id, [1], b""),
        ("end_event", envelope_id, event_id),
        ("end_envelope", envelope_id),
    ]
    assert worker.calls[3:] == expected
    assert [call[:4] for call in consumer.calls[3:]] == [call[:4] for call in expected]
    assert consumer.items() == [b"\x00\xff w_1", b" w_1"]


async def test_a_call_is_never_made_before_the_last_is_answered(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """A recipient of the old generation answers concurrently, so more than one call would lose the order."""
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    open_calls: dict[str, int] = {}

    def one_at_a_time(recipient: Any, verb: str) -> Any:
        usual = getattr(recipient, f"do_{verb}", lambda *_: (True, None))

        async def do(*args: Any) -> Any:
            open_calls[args[0]] = open_calls.get(args[0], 0) + 1
            assert open_calls[args[0]] == 1, "a second call while one is open"
            await asyncio.sleep(0.001)
            open_calls[args[0]] -= 1
            return usual(*args)

        return do

    async with (
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
        OldEmitter(daemon.front) as emitter,
    ):
        for verb in ("start_event", "send_item", "end_event", "end_envelope"):
            consumer.behave[verb] = one_at_a_time(consumer, verb)
        worker.behave["send_item"] = lambda e, v, i, data: (True, [(i, data)] * 3)
        sent = [await emitter.emit(*(b"%d" % n for n in range(10))) for _ in range(2)]
        await consumer.wait_for(sent)

    assert consumer.items() == [b"%d" % n for n in range(10) for _ in range(3)] * 2


async def test_one_envelope_at_a_time_for_a_recipient_that_announces_nothing(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        sent = await asyncio.gather(*(emitter.emit(b"%d" % n) for n in range(10)))
        await consumer.wait_for(sent)

    of_each = [envelope_id for envelope_id, _ in groupby(call[1] for call in consumer.calls[3:])]
    assert sorted(of_each) == sorted(sent), "the calls of two envelopes are mixed"


async def test_supervision_takes_a_dumb_recipient_off_the_list(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    # Soon, and not because the machine stood still for a moment.
    watched = {
        "enabled": "true",
        "node.polling.interval": 0.2,
        "node.polling.timeout": 1.5,
        "node.misses.threshold": 3,
    }
    daemon = start_daemon(sqlite_url, {"supervision": watched})
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        await eventually(lambda: len(consumer.got("ping")) >= 2, "it is pinged")
        pings = [args[0] for args in consumer.got("ping")]
        assert len(pings) == len(set(pings))
        assert await consumer.call.ready(consumer.token) is True

        async def dumb(*_: Any) -> Any:
            await asyncio.sleep(3600)

        consumer.behave["ping"] = dumb
        await eventually(lambda: "recipient left" in daemon.log, "it is taken off the list")
        sent = await emitter.emit(b"x")
        consumer.behave.clear()
        await answered(partial(is_unknown, consumer), "it is logged out")
        assert await consumer.register() is False, "it was logged out"
        consumer.token = await consumer.call.login("c_1", PASSWORD)
        assert await consumer.register()
        await consumer.wait_for([sent])
