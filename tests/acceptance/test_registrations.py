"""Recipients that register badly, slowly, or twice: they hold up nobody, and the newest serves the role."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import METADATA, OldConsumer, OldEmitter, OldWorker
from tests.support.operating import xbus
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.database.connection import reading, writing


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"test_event": {"c": []}, "other": {"d": []}}, {"c": 4})
    return start_daemon(sqlite_url, {"back": {"register_timeout": 600}})


async def test_who_is_slow_to_introduce_itself_holds_up_nobody(daemon: Daemon) -> None:
    """One for each of the three calls, and one at an address where nobody listens; all wait at the same time."""
    released = asyncio.Event()

    async def slow(*_: Any) -> None:
        await released.wait()
        raise ValueError("no")

    consumers = [OldConsumer(daemon.back, f"c_{number}") for number in (1, 2, 3, 4)]
    *waiting, lost = consumers
    for consumer, verb in zip(waiting, ("get_metadata", "has_clearing", "has_immediate_reply"), strict=True):
        consumer.behave[verb] = slow
    for consumer in consumers:
        await consumer.serve()
    registrations = [asyncio.create_task(consumer.register()) for consumer in waiting]
    nowhere = lost.call.register_node(lost.token, "tcp://127.0.0.1:1")
    await eventually(lambda: all(consumer.got("get_metadata") for consumer in waiting), "they are asked")
    async with OldConsumer(daemon.back, "d_1") as quick, OldEmitter(daemon.front) as emitter:
        sent = [await emitter.emit(b"%d" % n, type_name="other") for n in range(5)]
        await quick.wait_for(sent)
        assert not nowhere.done()
        assert not any(registration.done() for registration in registrations)
        released.set()
        assert await asyncio.gather(*registrations) == [False] * 3

        # Each may come again.
        waits = await emitter.emit(b"x")
        waiting[0].behave.clear()
        assert await waiting[0].register() is True
        await waiting[0].wait_for([waits])
    for consumer in consumers:
        await consumer.leave()
    await eventually(lambda: daemon.log.count("register_node refused") >= 3, "they are told why")
    assert daemon.log.count("register_node refused") == 3


async def test_the_older_of_two_registrations_of_a_role_is_told_off_the_list(daemon: Daemon) -> None:
    async with (
        OldEmitter(daemon.front) as emitter,
        OldConsumer(daemon.back, "c_1") as older,
        OldConsumer(daemon.back, "c_1") as newer,
    ):
        assert await older.call.ready(older.token) is False
        assert await newer.call.ready(newer.token) is True
        sent = [await emitter.emit(b"%d" % n) for n in range(3)]
        await newer.wait_for(sent)
        # That the older one goes changes nothing for the newer.
        assert await older.call.logout(older.token) is True
        sent.append(await emitter.emit(b"last"))
        await newer.wait_for(sent)

    assert older.got("start_event") == []
    assert newer.committed == sent
    assert "a newer recipient has registered for its role" in daemon.log


async def test_of_many_registrations_at_once_one_serves_the_role(daemon: Daemon) -> None:
    consumers = [OldConsumer(daemon.back, "c_1") for _ in range(8)]
    for consumer in consumers:
        await consumer.serve()
    assert await asyncio.gather(*(consumer.register() for consumer in consumers)) == [True] * 8
    ready = [await consumer.call.ready(consumer.token) for consumer in consumers]
    assert ready.count(True) == 1
    async with OldEmitter(daemon.front) as emitter:
        sent = [await emitter.emit(b"%d" % n) for n in range(3)]
        serving = consumers[ready.index(True)]
        await serving.wait_for(sent)
    assert serving.committed == sent
    assert not any(consumer.got("start_event") for consumer in consumers if consumer is not serving)
    for consumer in consumers:
        await consumer.leave()


async def test_an_older_recipient_that_is_still_there_is_told_to_forget_what_it_has_open(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as older, OldEmitter(daemon.front) as emitter:
        answering = asyncio.Event()

        async def slow(*_: Any) -> Any:
            await answering.wait()
            return True, None

        older.behave["end_event"] = slow
        envelope_id = await emitter.emit(b"1")
        await eventually(lambda: older.got("end_event"), "the older one is in the midst of it")
        async with OldConsumer(daemon.back, "c_1") as newer:
            await newer.wait_for([envelope_id])
            await eventually(lambda: older.got("stop_envelope") == [[envelope_id]], "the older one is told")
            answering.set()
            assert older.committed == []
            assert newer.committed == [envelope_id]


async def test_who_is_busy_when_the_broker_comes_back_is_called_until_it_answers(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """An old recipient never notices a restart, so nobody else would bring it back."""
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, {"back": {"register_timeout": 1}})
    is_free = asyncio.Event()

    async def answer_late() -> Any:
        await is_free.wait()
        return METADATA

    async with OldConsumer(daemon.back, "c_1") as consumer:
        daemon.kill()
        consumer.behave["get_metadata"] = answer_late
        await asyncio.to_thread(daemon.restart)
        await eventually(lambda: "action=not_restored" in daemon.log, "the broker has waited for it")
        is_free.set()
        async with OldEmitter(daemon.front) as emitter:
            await consumer.wait_for([await emitter.emit(b"x")])


async def test_the_session_of_a_recipient_outlives_the_wait_for_an_operators_word(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    """A worker of the old generation says by its token that it is ready: without it, it gets one event and no more."""
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}}, {"c": 2})
    # The last sessions of the consumers and of the worker are over by the time of the restart.
    daemon = start_daemon(sqlite_url, {"back": {"session_seconds": 0.1}})
    async with OldWorker(daemon.back, "w_1"):
        other = OldConsumer(daemon.back, "c_2")
        await other.serve()
        daemon.kill()
        with writing(sqlite_url) as connection:
            connection.execute(sa.update(model.registration).values(place="where it was backed up"))
        await asyncio.to_thread(daemon.restart)
        await eventually(lambda: count_sessions(sqlite_url, "c_2") == 0, "sessions that are over are ended")
        await xbus(daemon, "journal", "adopt", "--reason", "restored", "--yes")
        async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
            await consumer.wait_for([await emitter.emit(b"%d" % number) for number in range(3)])
        await other.leave()
    assert "ready refused" not in daemon.log


def count_sessions(url: str, login: str) -> int:
    wanted = sa.select(sa.func.count()).select_from(
        sa.join(model.session, model.role, model.role.c.id == model.session.c.role_id)
    )
    with reading(url) as connection:
        return int(connection.execute(wanted.where(model.role.c.login == login)).scalar_one())
