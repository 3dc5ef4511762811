"""Entries that get other names while the broker runs and envelopes flow: nobody is disturbed, and nothing is lost."""

import asyncio
from functools import partial

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker, close, connect
from tests.support.operating import xbus
from tests.support.showing import become
from tests.support.waiting import answered, eventually
from xbus.emitter import Emitter

RENAMED = """
[[event_type]]
name = "parcel"
renamed_from = "test_event"
[[event_type.node]]
name = "w"
service = "wrap"
to = ["c"]
[[event_type.node]]
name = "c"
service = "cellar"

[[service]]
name = "wrap"
kind = "worker"
renamed_from = "w"
[[service]]
name = "cellar"
kind = "consumer"
renamed_from = "c"

[[role]]
login = "wrap_1"
service = "wrap"
renamed_from = "w_1"
[[role]]
login = "cellar_1"
service = "cellar"
renamed_from = "c_1"
"""

RENAMED_EMITTER = """
[[emitter]]
login = "sender_1"
profile = "{profile}"
renamed_from = "emitter_1"
"""


async def rename(daemon: Daemon, emitter: bool = False) -> str:
    """Rename everything; the types that the profile allows go along."""
    file = RENAMED
    if emitter:
        exported = await xbus(daemon, "export")
        profile = exported.partition('login = "emitter_1"\nprofile = "')[2].partition('"')[0]
        file += RENAMED_EMITTER.format(profile=profile)
    return await xbus(daemon, "apply", "-", stdin=file)


@pytest.mark.parametrize("url", ["sqlite_url", "postgres_url"])
async def test_who_is_there_goes_on_under_the_new_names(
    url: str, request: pytest.FixtureRequest, start_daemon: StartDaemon
) -> None:
    database = request.getfixturevalue(url)
    add_bus(database, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(database)
    async with (
        OldEmitter(daemon.front) as emitter,
        OldWorker(daemon.back, "w_1") as worker,
        OldConsumer(daemon.back, "c_1") as consumer,
    ):
        sent = [await emitter.emit(b"before")]
        await consumer.wait_for(sent)
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"begun before")

        told = await rename(daemon, emitter=True)

        assert 'rename service "w" to "wrap"' in told
        start = partial(emitter.call.start_event, emitter.token, envelope_id, "parcel", 0)
        second = await answered(start, "the type is known by its new name")
        assert await emitter.call.start_event(emitter.token, envelope_id, "test_event", 0) == ""
        await emitter.end(envelope_id, event_id, second)
        sent += [envelope_id, await emitter.emit(b"after", type_name="parcel")]
        await consumer.wait_for(sent)
        assert worker.items(sent[-1]) == [b"after"]
        await become(database, sent[-1], cellar_1="done")
    assert consumer.committed == sent
    assert "died" not in daemon.log

    # What waits for a worker is delivered by whoever comes under the new login.
    async with OldEmitter(daemon.front, "sender_1") as emitter, OldConsumer(daemon.back, "cellar_1") as consumer:
        last = await emitter.emit(b"last", type_name="parcel")
        await become(database, last, cellar_1="waiting")
        shown = await xbus(daemon, "envelope", "show", last)
        assert 'no worker of service "wrap" is there' in shown
        await asyncio.to_thread(daemon.restart)
        async with OldWorker(daemon.back, "wrap_1"):
            await consumer.wait_for([last])
    client = await connect(daemon.back)
    assert await client.call.login("c_1", PASSWORD) == ""
    await close(client)


async def test_what_a_role_is_owed_waits_for_it_under_its_new_login(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter, OldWorker(daemon.back, "w_1"):
        sent = [await emitter.emit(b"%d" % number) for number in range(3)]
        await rename(daemon)
        await eventually(lambda: daemon.log.count("configuration read") > 1, "the broker knows")
        async with OldConsumer(daemon.back, "cellar_1") as consumer:
            await consumer.wait_for(sent)


async def test_a_key_stands_for_the_same_envelope(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"w": ["c"], "c": []}})
    daemon = start_daemon(database_url)

    def send(login: str, type_name: str) -> tuple[object, bytes]:
        with Emitter(daemon.front, login, PASSWORD) as emitter:
            with emitter.envelope(key="invoice 1") as envelope, envelope.event(type_name) as event:
                event.send(b"1")
            return envelope.receipt.envelope_id, envelope.receipt.hash

    first = await asyncio.to_thread(send, "emitter_1", "test_event")
    await rename(daemon, emitter=True)

    assert await asyncio.to_thread(send, "sender_1", "parcel") == first
