"""Graphs that are edited and roles that come and go while envelopes flow and are owed: against the real broker."""

import asyncio

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_xbus, xbus
from tests.support.showing import become
from tests.support.waiting import eventually

EDITED = """
[[event_type]]
name = "test_event"
[[event_type.node]]
name = "d"
service = "d"
"""


async def test_a_role_that_is_added_while_envelopes_flow_gets_all_from_its_beginning_on(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as first:
        sent = [await emitter.emit(b"%d" % number) for number in range(30)]
        adding = asyncio.create_task(asyncio.to_thread(add_bus, sqlite_url, {"test_event": {"c": []}}, {"c": 2}))
        sent += [await emitter.emit(b"%d" % number) for number in range(30, 70)]
        await adding
        later = await emitter.emit(b"later")
        async with OldConsumer(daemon.back, "c_2") as second:
            sent += [later, *[await emitter.emit(b"%d" % number) for number in range(70, 100)]]
            await first.wait_for(sent)
            await second.wait_for(sent[-31:])
    assert first.committed == sent
    assert second.committed == sent[-len(second.committed) :]
    assert later in second.committed
    assert len(second.committed) < len(sent)


async def owe_three(url: str, emitter: OldEmitter, daemon: Daemon) -> list[str]:
    """Envelopes that the service ``c`` has not got, though one it has."""
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await consumer.wait_for([had := await emitter.emit(b"had")])
        await become(url, had, c_1="done")
    # What is brought to one whose end is not noticed yet would have been tried.
    await eventually(lambda: "recipient left" in daemon.log, "it is known that it has gone")
    return [await emitter.emit(b"owed") for _ in range(3)]


@pytest.mark.parametrize(
    ("owed", "url"),
    [("keep", "sqlite_url"), ("drop", "sqlite_url"), ("reroute", "sqlite_url"), ("reroute", "postgres_url")],
)
async def test_a_node_that_goes_asks_what_becomes_of_what_its_service_is_owed(
    owed: str, url: str, request: pytest.FixtureRequest, start_daemon: StartDaemon
) -> None:
    database_url: str = request.getfixturevalue(url)
    add_bus(database_url, {"test_event": {"c": []}, "other": {"d": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter:
        sent = await owe_three(database_url, emitter, daemon)
        refused = await run_xbus(daemon, "apply", "-", stdin=EDITED)
        assert refused.returncode == 1
        assert 'role "c_1" has not got 3 envelopes yet: positions 2 to 4, the oldest of' in refused.stdout
        assert "say --owed keep" in refused.stderr
        version = daemon.log.count("configuration read")
        await xbus(daemon, "apply", "-", "--owed", owed, stdin=EDITED)
        await eventually(lambda: daemon.log.count("configuration read") > version, "the change is noticed")
        last = await emitter.emit(b"new")
        if owed != "keep":
            await eventually(lambda: "decision carried out" in daemon.log, "what was decided is done")
        async with OldConsumer(daemon.back, "c_1") as old, OldConsumer(daemon.back, "d_1") as new:
            await new.wait_for([last])
            if owed == "keep":
                await old.wait_for(sent)
            elif owed == "reroute":
                await new.wait_for(sent)
    assert sorted(old.committed) == (sorted(sent) if owed == "keep" else [])
    assert sorted(new.committed) == sorted([*sent, last] if owed == "reroute" else [last])
    if owed == "drop":
        shown = await xbus(daemon, "envelope", "show", sent[0])
        assert "dropped" in shown
        assert 'event_type "test_event" leads no longer to "c", what was owed dropped' in shown


async def test_what_a_role_is_owed_goes_to_the_one_that_takes_its_place(
    sqlite_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter:
        sent = await owe_three(sqlite_url, emitter, daemon)
        exported = await xbus(daemon, "export")
        add_bus(sqlite_url, {"test_event": {"c": []}}, {"c": 2})
        successor = exported.replace('"c_1"', '"c_2"')
        assert (await run_xbus(daemon, "apply", "-", "--prune", "--yes", stdin=successor)).returncode == 1
        await xbus(daemon, "apply", "-", "--prune", "--yes", "--owed", "reroute", stdin=successor)
        async with OldConsumer(daemon.back, "c_2") as second:
            await second.wait_for([*sent, last := await emitter.emit(b"new")])
    assert sorted(second.committed) == sorted([*sent, last])
