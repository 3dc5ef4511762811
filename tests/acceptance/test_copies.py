"""A copy of the journal harms nobody: not the live bus, and not its recipients; and a restore can be told from it."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.copies import copy_journal
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_command, xbus
from tests.support.ports import free_port
from tests.support.postgres import Server
from tests.support.sdk import Keeps
from tests.support.serving import serving
from tests.support.showing import become
from tests.support.waiting import answered, eventually
from tests.support.ways import ANY_PORT
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.roles import list_roles
from xbus.errors import Failed
from xbus.ids import proof_of
from xbus.recipient import Event, Item, Worker
from xbus.recipient.ways import Connections
from xbus.rpc.client import Client
from xbus.rpc.context import new_context
from xbus.states import PresenceState

GRAPH = {"test_event": {"w": ["c", "d"], "c": [], "d": [], "e": []}}

ITEM = b"\xa1x"
"""The text x in msgpack."""

Copy = Callable[[str], str]


class Hands(Worker):
    """Hands each item on."""

    def on_item(self, event: Event, item: Item) -> list[Item]:
        return [item]


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copy]:
    """Copies a journal while its broker runs, as docs/backup.md says."""
    made: list[str] = []

    def make(url: str) -> str:
        server: Server | None = None if url.startswith("sqlite") else request.getfixturevalue("postgres_server")
        made.append(copy_journal(url, tmp_path, server))
        return made[-1]

    yield make
    for url in made:
        if not url.startswith("sqlite"):
            request.getfixturevalue("postgres_server").drop(url)


def problems(daemon: Daemon) -> dict[str, dict[str, str]]:
    """What ``xbus health`` tells, by code."""
    told = run_command("health", "-c", daemon.config, "--json")
    return {problem["code"]: problem for line in told.stdout.splitlines() for problem in json.loads(line)["problems"]}


async def until_healthy(daemon: Daemon) -> None:
    async def is_healthy() -> bool:
        return await asyncio.to_thread(problems, daemon) == {}

    await answered(is_healthy, "the broker is healthy")


def states(url: str) -> dict[str, PresenceState]:
    with reading(url) as connection:
        return {role.role: role.state for role in list_roles(connection)}


async def until_present(url: str, *logins: str) -> None:
    def are_present() -> bool:
        now = states(url)
        return all(now[login] is PresenceState.PRESENT for login in logins)

    await eventually(are_present, f"{logins} are present")


async def test_a_copy_beside_the_live_bus_harms_nobody(
    database_url: str, start_daemon: StartDaemon, copy: Copy
) -> None:
    add_bus(database_url, GRAPH)
    live = start_daemon(database_url)
    consumer, at_copy = Keeps(), Keeps()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(live, "w_1", Hands(), bind=ANY_PORT))
        await stack.enter_async_context(serving(live, "c_1", consumer, bind=ANY_PORT))
        old = await stack.enter_async_context(OldConsumer(live.back, "d_1"))
        emitter = await stack.enter_async_context(OldEmitter(live.front))
        sent = [await emitter.emit(ITEM)]
        await old.wait_for(sent)

        # An envelope that is owed at the moment of the copy, and delivered at the live bus a moment later.
        is_copied = asyncio.Event()

        async def ends_late(envelope_id: str) -> Any:
            await is_copied.wait()
            return True, None

        old.behave["end_envelope"] = ends_late
        sent.append(await emitter.emit(ITEM))
        await old.wait_for(sent)
        copied = await asyncio.to_thread(copy, database_url)
        is_copied.set()
        await become(database_url, sent[-1], c_1="done", d_1="done", e_1="owed")
        calls = list(old.calls)

        other = await asyncio.to_thread(start_daemon, copied)
        problem = (await asyncio.to_thread(problems, other))["foreign_registrations"]
        assert problem["cause"].startswith("3 recipients, which are not called, registered at ")
        assert "xbus journal adopt" in problem["next_step"]
        # A recipient of the copy's own gets all that its role is owed there: so the copy had its time to deliver.
        async with serving(other, "e_1", at_copy), OldEmitter(other.front) as emitter_of_copy:
            lost = await emitter_of_copy.emit(ITEM)
            await eventually(lambda: lost in at_copy.committed, "the copy delivers to its own recipient")
            await become(copied, lost, c_1="owed", d_1="owed")
            assert old.calls == calls
            assert list(consumer.committed) == sent

            sent.append(await emitter.emit(ITEM))
            await old.wait_for(sent)
            await eventually(lambda: list(consumer.committed) == sent, "the live bus goes on")
            other.kill()
        await until_present(database_url, "w_1", "c_1", "d_1")
        await until_healthy(live)
        sent.append(await emitter.emit(ITEM))
        await old.wait_for(sent)
        await eventually(lambda: list(consumer.committed) == sent, "the live bus goes on")
        assert "action=leaving" not in live.log
    assert old.committed == sent
    assert len(old.got("get_metadata")) == 1
    assert live.log.count("action=registered") == 3


async def test_a_live_broker_calls_its_recipients_again_after_each_restart(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"d": []}})
    live = start_daemon(database_url)
    async with OldConsumer(live.back, "d_1") as old:
        for number, crash in enumerate((True, False), start=2):
            if crash:
                live.kill()
            await asyncio.to_thread(live.restart)
            await eventually(lambda: len(old.got("get_metadata")) == number, "it is called")  # noqa: B023
            await until_present(database_url, "d_1")
            await until_healthy(live)


async def test_a_restored_journal_becomes_the_live_one(
    database_url: str, start_daemon: StartDaemon, copy: Copy
) -> None:
    """Recipients of the SDK come by themselves; an old one is called when an operator says that this is right."""
    add_bus(database_url, {"test_event": {"c": [], "d": []}})
    sockets = {f"{side}socket": f"tcp://127.0.0.1:{free_port()}" for side in ("front", "back")}
    live = start_daemon(database_url, {"zmq": sockets})
    consumer = Keeps()
    async with serving(live, "c_1", consumer, bind=ANY_PORT), OldConsumer(live.back, "d_1") as old:
        async with OldEmitter(live.front) as emitter:
            first = await emitter.emit(ITEM)
            await old.wait_for([first])
        await become(database_url, first, c_1="done", d_1="done")
        backup = await asyncio.to_thread(copy, database_url)
        live.kill()

        restored = await asyncio.to_thread(start_daemon, backup, {"zmq": sockets})
        async with OldEmitter(restored.front) as emitter:
            second = await emitter.emit(ITEM)
            await eventually(lambda: second in consumer.committed, "the SDK's recipient comes by itself")

        async def waits_for_a_word() -> bool:
            told = await asyncio.to_thread(problems, restored)
            return told["foreign_registrations"]["cause"].startswith("1 recipient, which is not called, registered at ")

        await answered(waits_for_a_word, "the old recipient is not called")
        assert old.committed == [first]

        shown = await xbus(restored, "journal", "show")
        assert "d_1" in shown
        assert old.uri in shown
        adopted = await xbus(restored, "journal", "adopt", "--yes", "--reason", "the disk broke")
        assert adopted.endswith("Adopted. The broker on this journal calls them.\n")
        await old.wait_for([second])
        await until_healthy(restored)
    assert old.committed == [first, second]


async def test_a_copy_that_goes_its_own_way_forgets_the_recipients_of_the_original(
    sqlite_url: str, start_daemon: StartDaemon, copy: Copy
) -> None:
    add_bus(sqlite_url, {"test_event": {"d": []}})
    live = start_daemon(sqlite_url)
    async with OldConsumer(live.back, "d_1") as old:
        other = await asyncio.to_thread(start_daemon, copy(sqlite_url))
        assert "foreign_registrations" in await asyncio.to_thread(problems, other)
        forget = ["journal", "forget", "--reason", "a test", "--yes"]
        assert (await xbus(other, *forget)).endswith("Forgotten. They serve the original as before.\n")
        await until_healthy(other)
        assert (await xbus(other, *forget)).startswith("No recipient that listens has registered")
    assert len(old.got("get_metadata")) == 1


async def test_a_recipient_that_another_broker_took_comes_back(
    sqlite_url: str, start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those did that let any broker call them, and as one may in the moment in which it registers."""
    monkeypatch.setattr(Connections, "registered", lambda self: None)
    add_bus(sqlite_url, {"test_event": {"w": ["c"], "c": []}})
    live = start_daemon(sqlite_url)
    consumer = Keeps()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(live, "w_1", Hands(), bind=ANY_PORT))
        await stack.enter_async_context(serving(live, "c_1", consumer, bind=ANY_PORT))
        emitter = await stack.enter_async_context(OldEmitter(live.front))
        sent = [await emitter.emit(ITEM)]
        await become(sqlite_url, sent[-1], c_1="done")

        context = new_context()
        strangers = []
        for uri, of_token in registrations(sqlite_url):
            stranger = Client(context, name="another broker")
            stranger.connect(uri)
            # The copy has what the recipient takes for the proof of its broker.
            challenge = await stranger.call("xbus.challenge", timeout=60)
            assert isinstance(challenge, bytes)
            await stranger.call("xbus.prove", proof_of(of_token, challenge), timeout=60)
            await stranger.call("get_metadata", timeout=60)
            await stranger.call("stop_envelope", sent[0], timeout=60)
            strangers.append(stranger)
        sent.append(await emitter.emit(ITEM))
        await become(sqlite_url, sent[-1], c_1="done")
        await until_present(sqlite_url, "w_1", "c_1")
        await until_healthy(live)
        for stranger in strangers:
            with pytest.raises(Failed, match="connected anew"):
                await stranger.call("stop_envelope", sent[0], timeout=60)
            stranger.close()
        context.destroy(linger=0)
        # Each came back once, and stays.
        sent.append(await emitter.emit(ITEM))
        await become(sqlite_url, sent[-1], c_1="done")
        assert live.log.count("action=registered") == 4
    assert list(consumer.committed) == sent


def registrations(url: str) -> list[tuple[str, bytes]]:
    """List where the recipients of a journal are, and the hash of the token that each has."""
    with reading(url) as connection:
        rows = connection.execute(sa.select(model.registration.c.uri, model.registration.c.token_hash))
        return [(row.uri, row.token_hash) for row in rows]


async def test_a_drill_shows_a_journal_and_serves_nobody(
    database_url: str, start_daemon: StartDaemon, copy: Copy
) -> None:
    add_bus(database_url, {"test_event": {"d": []}})
    live = start_daemon(database_url)
    async with OldConsumer(live.back, "d_1") as old, OldEmitter(live.front) as emitter:
        sent = [await emitter.emit(ITEM)]
        await old.wait_for(sent)
        copied = await asyncio.to_thread(copy, database_url)
        # By mistake on the live journal, too: nothing is harmed there either.
        for url in (copied, database_url):
            drill = await asyncio.to_thread(start_daemon, url, drill=True)
            assert (await asyncio.to_thread(problems, drill)).keys() == {"drill"}
            await refuses_all(drill)
            assert "1  received" in await xbus(drill, "envelope", "list")
            assert drill.stop() == 0
        sent.append(await emitter.emit(ITEM))
        await old.wait_for(sent)
        with reading(copied) as connection:
            assert connection.execute(sa.select(model.writer.c.epoch)).scalars().all() == [1]
            assert connection.execute(sa.select(model.registration.c.uri)).scalars().all() == [old.uri]
    assert old.committed == sent
    assert len(old.got("get_metadata")) == 1


async def refuses_all(drill: Daemon) -> None:
    """Nobody can log in at either side, whether old or new."""
    context = new_context()
    for address in (drill.front, drill.back):
        client = Client(context, name="caller")
        client.connect(address)
        for verb in ("login", "xbus.login"):
            with pytest.raises(Failed) as refused:
                await client.call(verb, "emitter_1", "password", timeout=60)
            assert refused.value.code == "drill"
        client.close()
    context.destroy(linger=0)
