"""Pausing and resuming while envelopes flow: against the real broker, with its commands."""

import asyncio
import getpass
import json
import logging
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.old_clients import OldConsumer, OldEmitter, OldWorker
from tests.support.operating import run_xbus, xbus
from tests.support.processes import run, script
from tests.support.sdk import Keeps, emit, send_numbers
from tests.support.serving import serving
from tests.support.showing import become, progress
from tests.support.waiting import eventually
from xbus import model
from xbus.broker.journal.database.connection import reading
from xbus.errors import Failed
from xbus.reader import AsyncReader

IN_FORCE_SECONDS = 2.0
"""A pause, or its end, is in force so soon."""


async def pause(daemon: Daemon, kind: str, name: str, *options: str) -> None:
    """Pause something, and wait until the broker knows of it."""
    seen = daemon.log.count("configuration read")
    await xbus(daemon, "pause", kind, name, "--reason", "moving house", *options)
    began = time.monotonic()
    await eventually(lambda: daemon.log.count("configuration read") > seen, "the broker knows of the pause")
    assert time.monotonic() - began < IN_FORCE_SECONDS


async def objects(daemon: Daemon, *command: str) -> list[Any]:
    """The objects that a command writes as JSON."""
    return [json.loads(line) for line in (await xbus(daemon, *command, "--json")).splitlines()]


async def test_a_paused_role_gets_nothing_and_keeps_what_it_is_owed(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 2})
    daemon = start_daemon(database_url)
    async with (
        OldEmitter(daemon.front) as emitter,
        OldConsumer(daemon.back, "c_1") as first,
        OldConsumer(daemon.back, "c_2") as second,
    ):
        had = await emitter.emit(b"had")
        await first.wait_for([had])
        await pause(daemon, "role", "c_1")
        await eventually(lambda: "recipient paused" in daemon.log, "nothing begins any more")
        owed = [await emitter.emit(b"%d" % number) for number in range(20)]
        await second.wait_for(owed)
        assert first.committed == [had]
        daemon.restart()
        async with OldEmitter(daemon.front) as again:
            last = await again.emit(b"last")
        await second.wait_for([last])
        assert first.committed == [had]
        found = progress(database_url, owed[0])["c_1"]
        assert (found.state, found.code) == ("owed", "paused")
        assert "by " in (found.cause or "")
        assert "moving house" in await xbus(daemon, "envelope", "show", owed[0])
        (role,) = [each for each in await objects(daemon, "recipient", "list") if each["role"] == "c_1"]
        assert (role["state"], role["lag"], role["pause"]["reason"]) == ("paused", 21, "moving house")
        assert "is paused by" in await xbus(daemon, "recipient", "list", "-o", "wide")
        (process,) = await objects(daemon, "health")
        assert process["healthy"]
        assert [(each["kind"], each["name"]) for each in process["pauses"]] == [("role", "c_1")]
        assert "moving house" in await xbus(daemon, "health")
        await xbus(daemon, "resume", "role", "c_1", "--reason", "moved")
        await first.wait_for([*owed, last])
    assert first.committed == [had, *owed, last]


@pytest.mark.parametrize(
    ("kind", "name", "program"), [("role", "c_1", "recipient"), ("service", "audit", "reader")], ids=["c_1", "audit"]
)
async def test_a_paused_program_hears_of_it_once(
    kind: str, name: str, program: str, sqlite_url: str, start_daemon: StartDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    add_bus(sqlite_url, {"numbers": {"c": []}})
    add_reader(sqlite_url, "audit", "numbers", lease=1.0)
    daemon = start_daemon(sqlite_url)
    caplog.set_level(logging.INFO, "xbus")
    paused, resumed = f"{program}_paused", f"{program}_resumed"

    def told() -> list[str]:
        actions = (vars(record).get("action", "") for record in caplog.records)
        return [action for action in actions if action.endswith(("_paused", "_resumed"))]

    async with serving(daemon, "c_1", Keeps()), AsyncReader(daemon.back, "audit_1", PASSWORD) as reader:
        reading = asyncio.create_task(reader.next_batch())
        await pause(daemon, kind, name)
        await eventually(lambda: told() == [paused], "it hears of the pause")
        assert f'"{name}" is paused by {getpass.getuser()}: moving house' in caplog.text
        # Signs of life go on meanwhile.
        await pause(daemon, "emitter", "emitter_1")
        await xbus(daemon, "resume", kind, name, "--reason", "moved")
        await eventually(lambda: told() == [paused, resumed], "it hears that it goes on, and each once")
        await xbus(daemon, "resume", "emitter", "emitter_1", "--reason", "moved")
        await emit(daemon, send_numbers(3))
        assert len(await reading) == 3


async def test_a_paused_worker_keeps_its_events_waiting_and_nothing_fails(
    database_url: str, start_daemon: StartDaemon
) -> None:
    add_bus(database_url, {"test_event": {"w": ["c"], "c": []}, "direct": {"c": []}})
    daemon = start_daemon(database_url, {"back": {"worker_grace": 60}})
    async with (
        OldEmitter(daemon.front) as emitter,
        OldWorker(daemon.back, "w_1"),
        OldConsumer(daemon.back, "c_1") as consumer,
    ):
        await pause(daemon, "service", "w")
        await eventually(lambda: "recipient paused" in daemon.log, "nothing begins any more")
        waiting = [await emitter.emit(b"%d" % number) for number in range(3)]
        direct = await emitter.emit(b"direct", type_name="direct")
        # The others do not hold this one up: they are set aside at once.
        await consumer.wait_for([direct])
        await become(database_url, waiting[2], c_1="waiting")
        found = progress(database_url, waiting[2])["c_1"]
        assert (found.code, found.attempts) == ("paused", 0)
        assert 'service "w" is paused' in (found.cause or "")
        assert "moving house" in (found.cause or "")
        await xbus(daemon, "resume", "service", "w")
        await consumer.wait_for(waiting)
    assert sorted(consumer.committed) == sorted([direct, *waiting])


async def test_a_pause_ends_by_itself_and_history_has_all_of_it(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        until = datetime.now(UTC) + timedelta(seconds=6)
        await pause(daemon, "role", "c_1", "--until", until.isoformat())
        owed = await emitter.emit(b"owed")
        await consumer.wait_for([owed])
        assert datetime.now(UTC) >= until
    who = getpass.getuser()
    assert moves(database_url, "role", "c_1") == [
        ("paused", f"{who}: moving house (until {until:%Y-%m-%d %H:%M:%SZ})"),
        ("resumed", "its time was over"),
    ]


def moves(url: str, subject: str, name: str) -> list[tuple[str, str]]:
    """The history of a subject: each move with its reason."""
    history = model.history.c
    with reading(url) as connection:
        found = connection.execute(
            sa.select(history.move, history.reason)
            .where(history.subject == subject, history.subject_id == name)
            .order_by(history.id)
        )
        return [(row.move, row.reason) for row in found]


@pytest.mark.parametrize("kind", ["emitter", "type"])
async def test_a_paused_emitter_or_type_is_refused_and_may_end_what_is_open(
    kind: str, database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(database_url, {"numbers": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        envelope_id, event_id = await emitter.start("numbers")
        named = {"emitter": "emitter_1", "type": "numbers"}[kind]
        await pause(daemon, kind, named, "--reason", "moving \x1b[2J\u202ehouse")
        await refused(emitter, kind)
        await emitter.send(envelope_id, event_id, b"more")
        await emitter.end(envelope_id, event_id)
        await consumer.wait_for([envelope_id])
        with pytest.raises(Failed) as failed:
            await emit(daemon, send_numbers(3), retry_seconds=0)
        assert failed.value.code == "paused"
        assert f"is paused by {getpass.getuser()}: moving \\x1b[2J\\u202ehouse" in failed.value.cause
        with pytest.raises(Failed, match="was not resumed within 1 s"):
            await emit(daemon, send_numbers(3), pause_seconds=1)
        with pytest.raises(Failed, match="and the 1 s of `timeout` are over"):
            await emit(daemon, lambda sender: sender.put("numbers", [b"1"], timeout=1))
        await command_waits(daemon, kind, named, tmp_path)
        waiting = asyncio.create_task(emit(daemon, send_numbers(3)))
        asked = daemon.log.count("is paused")
        await eventually(lambda: daemon.log.count("is paused") > asked + 5, "the emitter waits for the end")
        assert not waiting.done()
        await xbus(daemon, "resume", kind, named)
        receipt = await waiting
        await consumer.wait_for([receipt.envelope_id])
    assert consumer.committed == [envelope_id, receipt.envelope_id]


async def command_waits(daemon: Daemon, kind: str, named: str, folder: Path) -> None:
    """Emit by the command, which says at once what it waits for and how that ends, and waits for its time-out."""
    password, items = folder / "password", folder / "items.jsonl"
    password.write_text("password")
    password.chmod(0o600)
    items.write_text("1\n")
    options: list[str | Path] = [
        "--type",
        "numbers",
        "--login",
        "emitter_1",
        "--password-file",
        password,
        "--timeout",
        "1",
    ]
    done = await asyncio.to_thread(run, script("xbus"), "emit", items, *options, "-c", daemon.config)
    *_, told, ended = done.stderr.strip().splitlines()
    assert told.startswith("waiting for up to 1 s: the ")
    assert f"is paused by {getpass.getuser()}: moving" in told
    assert told.endswith(f": xbus resume {kind} {named} --reason … ends the pause; repeat the call then")
    assert "was not resumed within 1 s" in ended
    assert done.returncode == 3


async def refused(emitter: OldEmitter, kind: str) -> None:
    """Begin an event in vain, as an emitter of 0.2.0 does, which gets the refusals that it knows."""
    envelope_id = await emitter.call.start_envelope(emitter.token)
    if kind == "emitter":
        assert envelope_id == ""
        return
    assert await emitter.call.start_event(emitter.token, envelope_id, "numbers", 0) == ""
    assert await emitter.call.cancel_envelope(emitter.token, envelope_id) is True


async def test_an_outbox_waits_for_the_end_of_a_pause(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"numbers": {"c": []}})
    daemon = start_daemon(sqlite_url)
    outbox = tmp_path / "numbers.outbox"
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await pause(daemon, "emitter", "emitter_1")
        await emit(daemon, send_numbers(3), outbox=outbox, retry_seconds=1, outbox_seconds=4)
        status = (await asyncio.to_thread(run, script("xbus"), "outbox", "status", outbox)).stdout
        assert "(paused)" in status
        await xbus(daemon, "resume", "emitter", "emitter_1")
        await emit(daemon, send_numbers(2), outbox=outbox, outbox_seconds=60)
        await eventually(lambda: len(consumer.committed) == 2, "both come")


async def test_drain_waits_until_what_is_under_way_has_ended(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    async with OldEmitter(daemon.front) as emitter, OldConsumer(daemon.back, "c_1") as consumer:
        going = asyncio.Event()
        consumer.behave["end_envelope"] = lambda *_: when(going, (True, None))
        first = await emitter.emit(b"first")
        await eventually(lambda: ("end_envelope", first) in consumer.calls, "it is under way")
        late = await run_xbus(daemon, "drain", "role", "c_1", "--reason", "moving house", "--timeout", "5s")
        assert late.returncode == 3
        assert "Still under way: 1 envelope." in late.stderr
        assert "role c_1 is not drained after 5 s: 1 envelope" in late.stderr
        draining = asyncio.create_task(run_xbus(daemon, "drain", "role", "c_1", "--reason", "moving house"))
        owed = await emitter.emit(b"owed")
        await become(database_url, owed, c_1="owed")
        going.set()
        drained = await draining
        assert drained.returncode == 0, drained.stderr
        assert "Nothing of role c_1 is under way any more." in drained.stdout
        await become(database_url, first, c_1="done")
        await xbus(daemon, "resume", "role", "c_1")
        await consumer.wait_for([first, owed])


async def when(event: asyncio.Event, answer: object) -> object:
    """Answer as soon as something has happened."""
    await event.wait()
    return answer


async def test_drain_of_an_emitter_waits_for_its_open_envelopes(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        await emitter.send(envelope_id, event_id, b"item")
        for kind, name in (("emitter", "emitter_1"), ("type", "test_event")):
            late = await run_xbus(daemon, "drain", kind, name, "--reason", "moving house", "--timeout", "3s")
            assert late.returncode == 3
            assert "after 3 s: 1 envelope" in late.stderr
        await emitter.end(envelope_id, event_id)
        for kind, name in (("emitter", "emitter_1"), ("type", "test_event")):
            await xbus(daemon, "drain", kind, name, "--reason", "moving house", "--timeout", "30s")
