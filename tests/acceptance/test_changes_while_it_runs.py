"""``xbus apply`` and ``xbus password`` on a bus that runs: what is changed holds a moment later, without a restart."""

import asyncio
from functools import partial
from pathlib import Path

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker, close, connect
from tests.support.operating import xbus
from tests.support.showing import become
from tests.support.waiting import answered, eventually

MORE = """
[[event_type]]
name = "new_event"

[[event_type.node]]
name = "mark"
service = "mark"
to = ["store"]
[[event_type.node]]
name = "store"
service = "store"

[[service]]
name = "mark"
kind = "worker"
[[service]]
name = "store"
kind = "consumer"

[[role]]
login = "mark_1"
service = "mark"
[[role]]
login = "store_1"
service = "store"

[[emitter_profile]]
name = "everything"
event_types = ["test_event", "new_event"]

[[emitter]]
login = "emitter_3"
profile = "everything"
"""


async def test_who_logs_in_after_a_change_finds_it_in_force(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    for number in range(3):
        name = f"event_{number}"
        add_bus(sqlite_url, {name: {f"c{number}": []}, "test_event": {"c": []}})
        async with OldConsumer(daemon.back, f"c{number}_1") as consumer, OldEmitter(daemon.front) as emitter:
            await consumer.wait_for([await emitter.emit(b"x", type_name=name)])


async def test_new_types_roles_and_emitters_work_without_a_restart(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    (tmp_path / "more.toml").write_text(MORE)
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, old_event = await emitter.start()
        assert await emitter.call.start_event(emitter.token, envelope_id, "new_event", 0) == ""
        told = await xbus(daemon, "apply", tmp_path / "more.toml")
        assert "role store_1 can't log in yet" in told
        for kind, login in (("role", "mark_1"), ("role", "store_1"), ("emitter", "emitter_3")):
            await xbus(daemon, "password", kind, login, "--stdin", stdin=f"{PASSWORD}\n")
        start = partial(emitter.call.start_event, emitter.token, envelope_id, "new_event", 0)
        new_event = await answered(start, "the new type is known")
        await emitter.send(envelope_id, new_event, b"x")
        await emitter.end(envelope_id, old_event, new_event)
        async with OldWorker(daemon.back, "mark_1"), OldConsumer(daemon.back, "store_1") as store:
            await store.wait_for([envelope_id])
            assert store.items() == [b"x mark_1"]
        assert "Nothing to change" in await xbus(daemon, "apply", tmp_path / "more.toml")


async def test_an_event_goes_by_the_graph_that_it_was_started_with(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        before = await emitter.start()
        version = daemon.log.count("configuration read")
        add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
        await eventually(lambda: daemon.log.count("configuration read") > version, "the change is noticed")
        after = await emitter.start()
        for envelope_id, event_id in (before, after):
            await emitter.send(envelope_id, event_id, b"x")
            await emitter.end(envelope_id, event_id)
        await consumer.wait_for([before[0]])
        async with OldWorker(daemon.back, "w_1"):
            await consumer.wait_for([after[0]])
    assert consumer.items(before[0]) == [b"x"]
    assert consumer.items(after[0]) == [b"x w_1"]


async def test_a_role_that_is_added_gets_what_comes_and_one_that_is_removed_nothing_more(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    exported = await xbus(daemon, "export")
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as first:
        before = await emitter.emit(b"before")
        await first.wait_for([before])
        add_bus(sqlite_url, {"test_event": {"c": []}}, {"c": 2})
        async with OldConsumer(daemon.back, "c_2") as second:
            after = await emitter.emit(b"after")
            await first.wait_for([after])
            await second.wait_for([after])
            assert second.committed == [after]
            await become(sqlite_url, after, c_1="done", c_2="done")
            (tmp_path / "bus.toml").write_text(exported)
            await xbus(daemon, "apply", tmp_path / "bus.toml", "--prune", "--yes")
            await eventually(lambda: "action=unregistered role=c_2" in daemon.log, "it is told off the list")
            last = await emitter.emit(b"last")
            await first.wait_for([last])
            await asyncio.sleep(0.3)
            assert second.committed == [after]
            assert await second.register() is False


async def test_an_emitter_that_is_removed_can_do_nothing_more(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front, "emitter_2") as emitter:
        envelope_id, event_id = await emitter.start()
        kept = (await xbus(daemon, "export")).split("[[emitter]]")
        (tmp_path / "bus.toml").write_text("[[emitter]]".join(part for part in kept if "emitter_2" not in part))
        told = await xbus(daemon, "apply", tmp_path / "bus.toml", "--prune", "--yes")
        assert "emitter_2" in told

        async def refused() -> bool:
            return not await emitter.call.start_event(emitter.token, envelope_id, "test_event", 0)

        await answered(refused, "it may start nothing more")
        client = await connect(daemon.front)
        assert await client.call.login("emitter_2", PASSWORD) == ""
        await close(client)
        assert event_id
