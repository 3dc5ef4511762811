"""Workers and consumers are killed, absent, or replaced: everyone gets everything, in the end and in order."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.processes import script
from tests.support.showing import become, progress, shown
from tests.support.waiting import answered, eventually
from tests.support.ways import WAY

CHAIN = {"test_event": {"w": ["c"], "c": []}}


async def _hold_at(recipient: Any, verb: str) -> asyncio.Event:
    """Have a recipient never answer a verb; the event is set when it is asked."""
    reached = asyncio.Event()

    async def hold(*args: Any) -> Any:
        reached.set()
        await asyncio.sleep(3600)

    recipient.behave[verb] = hold
    return reached


@pytest.mark.parametrize("verb", ["start_event", "send_item", "end_event", "end_envelope"])
async def test_a_consumer_that_vanishes_gets_the_envelope_again_and_holds_nobody(
    verb: str, sqlite_url: str, start_daemon: StartDaemon
) -> None:
    await _vanish(sqlite_url, start_daemon, verb)


async def test_a_consumer_that_vanishes_on_postgresql(postgres_url: str, start_daemon: StartDaemon) -> None:
    await _vanish(postgres_url, start_daemon, "send_item")


async def _vanish(url: str, start_daemon: StartDaemon, verb: str) -> None:
    add_bus(url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(url)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(OldWorker(daemon.back, "w_1"))
        other = await stack.enter_async_context(OldConsumer(daemon.back, "d_1"))
        emitter = await stack.enter_async_context(OldEmitter(daemon.front))
        first = OldConsumer(daemon.back, "c_1")
        async with first:
            reached = await _hold_at(first, verb)
            envelope_id = await emitter.emit(b"x", b"y")
            await eventually(reached.is_set, "it is asked")
        await other.wait_for([envelope_id])
        await become(url, envelope_id, c_1="retry", d_1="done")
        later = await emitter.emit(b"z")
        await other.wait_for([later])
        back = await stack.enter_async_context(OldConsumer(daemon.back, "c_1"))
        await back.wait_for([envelope_id, later])
        await become(url, envelope_id, c_1="done", d_1="done")

    assert back.verbs(envelope_id) == [
        "stop_envelope",
        "start_event",
        "send_item",
        "send_item",
        "end_event",
        "end_envelope",
    ]
    assert back.verbs(later) == ["start_event", "send_item", "end_event", "end_envelope"]
    assert other.items() == [b"x w_1", b"y w_1", b"z w_1"]
    assert other.got("stop_envelope") == []


@pytest.mark.usefixtures("each_way")
async def test_a_consumer_of_the_sdk_that_is_killed_gets_the_envelope_again(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    (tmp_path / "killed.py").write_text(PROGRAM)
    (tmp_path / "password").write_text(PASSWORD)
    options = ["--login", "c_1", "--password-file", tmp_path / "password", "--back", daemon.back, *WAY.options]
    command = [script("xbus"), "recipient", "run", "killed:Notes", *options]
    first = start_process(*command)
    async with OldEmitter(daemon.front) as emitter:
        # Longer than what a run may have on its way, so that it is in the midst of it.
        envelope_id = await emitter.emit(*(b"%d" % n for n in range(50)))
        await eventually(lambda: (tmp_path / "reached").exists(), "the consumer is in the midst of it")
    first.kill()
    (tmp_path / "reached").unlink()
    (tmp_path / "go").touch()
    start_process(*command)
    await become(sqlite_url, envelope_id, c_1="done")
    lines = (tmp_path / "notes").read_text().splitlines()
    assert lines == [f"rollback {envelope_id}", *(str(n) for n in range(50)), f"commit {envelope_id}"]


PROGRAM = """
import pathlib, time
from xbus.recipient import Consumer

class Notes(Consumer):
    def note(self, line):
        with open("notes", "a") as notes:
            notes.write(f"{line}\\n")

    def on_item(self, event, item):
        if not pathlib.Path("go").exists():
            pathlib.Path("reached").touch()
            time.sleep(3600)
        self.note(item.data.decode())

    def commit(self, envelope):
        self.note(f"commit {envelope.id}")

    def rollback(self, envelope):
        self.note(f"rollback {envelope.id}")
"""


async def test_a_worker_that_vanishes_is_waited_for(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, CHAIN)
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        async with OldWorker(daemon.back, "w_1") as worker:
            reached = await _hold_at(worker, "send_item")
            envelope_id = await emitter.emit(b"x")
            await eventually(reached.is_set, "it is asked")
        await become(database_url, envelope_id, c_1="waiting")
        later = await emitter.emit(b"y")
        assert consumer.verbs(envelope_id) in (["start_event", "stop_envelope"], ["stop_envelope"], [])
        async with OldWorker(daemon.back, "w_1"):
            await consumer.wait_for([envelope_id, later])

    # One that was tried before goes alone, so another may overtake it.
    assert sorted(consumer.items()) == [b"x w_1", b"y w_1"]
    assert sorted(consumer.committed) == sorted([envelope_id, later])


async def test_a_second_worker_takes_over_from_one_that_vanished(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, CHAIN, {"w": 2})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        async with OldWorker(daemon.back, "w_1") as worker:
            reached = await _hold_at(worker, "send_item")
            sent = await emitter.emit(b"x")
            await eventually(reached.is_set, "it is asked")
            second = OldWorker(daemon.back, "w_2")
            await second.__aenter__()
        await consumer.wait_for([sent])
        await second.leave()

    assert consumer.items() == [b"x w_2"]


async def test_everything_waits_for_absent_recipients_and_comes_once_in_order(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(database_url, {"back": {"worker_grace": 0.3}})
    async with AsyncExitStack() as stack:
        emitter = await stack.enter_async_context(OldEmitter(daemon.front))
        present = await stack.enter_async_context(OldConsumer(daemon.back, "c_1"))
        nobody_there = [await emitter.emit(b"%d" % n) for n in range(20)]
        await become(database_url, nobody_there[-1], c_1="waiting", d_1="owed")
        async with OldWorker(daemon.back, "w_1"):
            await present.wait_for(nobody_there)
            worker_there = [await emitter.emit(b"%d" % n) for n in range(20, 40)]
            await present.wait_for(worker_there)
        worker_gone = [await emitter.emit(b"%d" % n) for n in range(40, 45)]
        await become(database_url, worker_gone[-1], c_1="waiting", d_1="owed")
        await asyncio.to_thread(daemon.restart)
        await stack.enter_async_context(OldWorker(daemon.back, "w_1"))
        late = await stack.enter_async_context(OldConsumer(daemon.back, "d_1"))
        sent = nobody_there + worker_there + worker_gone
        await present.wait_for(sent)
        await late.wait_for(sent)
        await asyncio.sleep(0.3)

    everything = [b"%d w_1" % n for n in range(45)]
    assert sorted(present.items()) == sorted(late.items()) == sorted(everything)
    assert present.committed == sent
    assert late.committed == sent


async def test_the_newest_of_two_recipients_of_one_role_gets_what_comes(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldConsumer(daemon.back, "c_1") as older, OldEmitter(daemon.front) as emitter:
        first = await emitter.emit(b"1")
        await older.wait_for([first])
        reached = await _hold_at(older, "send_item")
        second = await emitter.emit(b"2")
        await eventually(reached.is_set, "it is asked")
        async with OldConsumer(daemon.back, "c_1") as newer:
            third = await emitter.emit(b"3")
            await newer.wait_for([second, third])
            assert newer.verbs(second)[0] == "stop_envelope"
            assert sorted(newer.committed) == sorted([second, third])
    assert older.committed == [first]


async def test_a_recipient_that_registers_anew_in_mid_run_starts_over(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldConsumer(daemon.back, "c_1") as consumer, OldEmitter(daemon.front) as emitter:
        reached = await _hold_at(consumer, "send_item")
        envelope_id = await emitter.emit(b"x")
        await eventually(reached.is_set, "it is asked")
        consumer.behave.clear()
        assert await consumer.register()
        await consumer.wait_for([envelope_id])

    assert consumer.verbs(envelope_id)[-5:] == [
        "stop_envelope",
        "start_event",
        "send_item",
        "end_event",
        "end_envelope",
    ]


async def test_an_item_that_kills_its_consumer_does_not_loop(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, {"back": {"attempts": 3}})
    async with OldEmitter(daemon.front) as emitter:
        poison, good = await emitter.emit(b"poison"), await emitter.emit(b"good")

        def is_parked() -> bool:
            return progress(sqlite_url, poison)["c_1"].state == "parked"

        for _ in range(10):
            async with OldConsumer(daemon.back, "c_1") as consumer:
                died = asyncio.Event()

                async def take(envelope_id: str, event_id: str, indices: Any, data: bytes) -> Any:
                    if data == b"poison":
                        died.set()  # noqa: B023
                        await asyncio.sleep(3600)
                    return True, None

                consumer.behave["send_item"] = take

                async def has_died_or_is_left_in_peace() -> bool:
                    return died.is_set() or await asyncio.to_thread(is_parked)  # noqa: B023

                await answered(has_died_or_is_left_in_peace, "the item kills it, or comes no more")
                if not died.is_set():
                    await become(sqlite_url, good, c_1="done")
                    break
        else:
            pytest.fail("it came again and again")

    role = progress(sqlite_url, poison)["c_1"]
    assert (role.attempts, role.code) == (3, "connection_lost")
    assert len(shown(sqlite_url, poison).failures) == 3


async def test_old_and_new_recipients_serve_one_graph(sqlite_url: str, start_daemon: StartDaemon) -> None:
    """The worker and one consumer are of the SDK; the emitter and the other consumer are not."""
    from xbus.recipient import Consumer, Item, Worker
    from xbus.recipient.running import serve

    class Doubles(Worker):
        def on_item(self, event: Any, item: Item) -> Any:
            return [item, item.data + b"!"]

    class Takes(Consumer):
        taken: list[bytes] = []  # noqa: RUF012
        committed: list[str] = []  # noqa: RUF012

        def on_item(self, event: Any, item: Item) -> None:
            self.taken.append(item.data)

        def commit(self, envelope: Any) -> None:
            self.committed.append(str(envelope.id))

    add_bus(sqlite_url, {"test_event": {"w": ["v"], "v": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(sqlite_url)
    stop = asyncio.Event()
    async with (
        asyncio.TaskGroup() as tasks,
        OldWorker(daemon.back, "v_1"),
        OldConsumer(daemon.back, "c_1") as old,
        OldEmitter(daemon.front) as emitter,
    ):
        takes = Takes()
        tasks.create_task(serve(Doubles(), daemon.back, "w_1", PASSWORD, stop))
        tasks.create_task(serve(takes, daemon.back, "d_1", PASSWORD, stop))
        sent = [await emitter.emit(*(b"%d" % n for n in range(30))) for _ in range(3)]
        await old.wait_for(sent)
        await eventually(lambda: len(takes.committed) == 3, "the other one gets all")
        stop.set()

    expected = [made for n in range(30) for made in (b"%d v_1" % n, b"%d! v_1" % n)]
    assert old.items() == takes.taken == expected * 3
    assert [args[2] for args in old.got("send_item")][:4] == [[0], [0], [1], [1]]


async def test_what_waits_comes_once_however_often_the_broker_was_started_meanwhile(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c", "d"], "c": [], "d": []}})
    daemon = start_daemon(sqlite_url, {"back": {"worker_grace": 0.3}})
    async with OldConsumer(daemon.back, "d_1") as present, OldEmitter(daemon.front) as emitter:
        sent = [await emitter.emit(b"%d" % n) for n in range(3)]
        await become(sqlite_url, sent[-1], d_1="waiting")
        for crash in (True, False, True):
            if crash:
                daemon.crash()
            await asyncio.to_thread(daemon.restart)
        async with OldWorker(daemon.back, "w_1"), OldConsumer(daemon.back, "c_1") as absent:
            await present.wait_for(sent)
            await absent.wait_for(sent)
            # What would come twice has come before the next.
            sent.append(await emitter.emit(b"last"))
            await present.wait_for(sent)
            await absent.wait_for(sent)

    for consumer in (present, absent):
        assert consumer.committed == sent
        assert consumer.items() == [b"0 w_1", b"1 w_1", b"2 w_1", b"last w_1"]
