"""Limits of an emitter: ``xbus apply`` sets them, the front keeps them, and programs wait; against the real broker."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.flooding import logged_in
from tests.support.old_clients import OldConsumer, OldEmitter
from tests.support.operating import run_xbus, xbus
from tests.support.processes import run, script
from tests.support.sdk import emit, send_numbers
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter
from xbus.errors import Failed
from xbus.rpc.client import Client
from xbus.rpc.codec import Value, pack_items
from xbus.rpc.context import new_context

IN_FORCE_SECONDS = 2.0
"""A limit, or its end, is in force so soon."""

SECONDS = 60.0

PROFILE = '[[emitter_profile]]\nname = "all"\nevent_types = ["numbers", "test_event"]\n'
EMITTER = '[[emitter]]\nlogin = "emitter_1"\nprofile = "all"\n'


NONE: Mapping[str, int] = {}


def table(limits: Mapping[str, int]) -> str:
    return "".join(f"{name} = {value}\n" for name, value in limits.items())


async def limit(
    daemon: Daemon, folder: Path, of_emitter: Mapping[str, int] = NONE, of_profile: Mapping[str, int] = NONE
) -> None:
    """Give the emitter and its profile limits, and wait until the broker knows of them."""
    seen = daemon.log.count("configuration read")
    file = folder / "limits.toml"
    file.write_text(PROFILE + table(of_profile) + EMITTER + table(of_emitter))
    await xbus(daemon, "apply", file, "--yes")
    began = time.monotonic()
    await eventually(lambda: daemon.log.count("configuration read") > seen, "the broker knows of the limits")
    assert time.monotonic() - began < IN_FORCE_SECONDS


@asynccontextmanager
async def caller(daemon: Daemon) -> AsyncIterator[tuple[Client, str]]:
    """A client that waits for nothing by itself, and its token."""
    context = new_context()
    client = Client(context, name="caller")
    try:
        client.connect(daemon.front)
        yield client, await logged_in(client, "emitter_1")
    finally:
        client.close()
        context.destroy(linger=0)


def put(client: Client, token: str, items: int = 1, size: int = 1, events: int = 1) -> "asyncio.Future[Value]":
    data = pack_items([b"x" * size] * items)
    sent = [[str(uuid4()), "test_event", items, data] for _ in range(events)]
    return client.call("xbus.put_envelope", token, str(uuid4()), sent, timeout=SECONDS)


async def codes(*calls: "asyncio.Future[Value]") -> list[str]:
    """The codes of refused calls; empty for those that were carried out."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Failed) and outcome.code == "slow_down":
            assert outcome.details["seconds"] > 0
    return [getattr(outcome, "code", "") for outcome in outcomes]


async def test_each_limit_is_kept_and_ends_with_the_next_bus_file(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(database_url, {"test_event": {}, "numbers": {}})
    daemon = start_daemon(database_url)
    async with caller(daemon) as (client, token):

        def start() -> "asyncio.Future[Value]":
            return client.call("xbus.start_envelope", token, str(uuid4()), timeout=SECONDS)

        def puts(count: int, items: int = 1, size: int = 1) -> "list[asyncio.Future[Value]]":
            return [put(client, token, items, size) for _ in range(count)]

        cases: list[tuple[dict[str, int], Callable[[], list[asyncio.Future[Value]]], int]] = [
            ({"items_per_second": 1}, lambda: puts(2, items=1000), 1),
            ({"bytes_per_second": 1}, lambda: puts(2, size=1000), 1),
            ({"open_envelopes": 2}, lambda: [start() for _ in range(4)], 2),
            ({"calls_in_flight": 3}, lambda: puts(30), 3),
            ({"bytes_in_flight": 100}, lambda: puts(30, size=200), 1),
        ]
        for of_one, calls, passing in cases:
            await limit(daemon, tmp_path, of_one)
            found = await codes(*calls())
            assert found.count("slow_down") + found.count("") == len(found), (of_one, found)
            assert passing <= found.count("") < len(found), (of_one, found)
            told = await run_xbus(daemon, "why", "--emitter", "emitter_1")
            assert "emitter_1 is held by its limits: " in told.stdout, told.stderr
            assert "[slow_down]" in told.stdout
            await limit(daemon, tmp_path)
            assert set(await codes(*calls())) == {""}, of_one
        await limit(daemon, tmp_path, {"envelope_events": 2})
        assert await codes(put(client, token, events=2), put(client, token, events=3)) == ["", "envelope_too_large"]


async def test_who_waits_for_each_receipt_never_has_two_calls_in_flight(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    """A receipt may go before the broker's loop has counted its call as answered."""
    add_bus(sqlite_url, {"test_event": {}, "numbers": {}})
    daemon = start_daemon(sqlite_url)
    await limit(daemon, tmp_path, {"calls_in_flight": 1})
    async with caller(daemon) as (client, token):

        async def put_again_and_again() -> None:
            for _ in range(300):
                entry = [uuid4().bytes, uuid4().bytes, "test_event", 1, pack_items([b"x"]), None, None]
                ((_, position, _),) = cast(
                    Any, await client.call("xbus.put_envelopes", token, [entry], timeout=SECONDS)
                )
                assert position > 0

        async def keep_busy() -> None:
            while not putting.done():
                await asyncio.gather(*[client.call("xbus.get_limits", token, timeout=SECONDS) for _ in range(20)])

        async with asyncio.TaskGroup() as tasks:
            putting = tasks.create_task(put_again_and_again())
            tasks.create_task(keep_busy())


async def test_limits_of_an_emitter_come_before_those_of_its_profile_and_outlive_a_restart(
    database_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(database_url, {"test_event": {}, "numbers": {}})
    daemon = start_daemon(database_url)
    await limit(daemon, tmp_path, {"envelope_events": 2}, {"envelope_events": 1, "open_envelopes": 7})
    exported = await xbus(daemon, "export")
    assert 'profile = "all"\nenvelope_events = 2\n' in exported
    assert "open_envelopes = 7\nenvelope_events = 1\n" in exported
    daemon.restart()
    async with caller(daemon) as (client, token):
        assert await codes(put(client, token, events=2), put(client, token, events=3)) == ["", "envelope_too_large"]
    seen = tmp_path / "exported.toml"
    seen.write_text(exported)
    assert "Nothing to change" in await xbus(daemon, "apply", seen, "--yes")


async def test_wrong_limits_are_refused_with_their_line(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {}, "numbers": {}})
    daemon = start_daemon(sqlite_url)
    file = tmp_path / "limits.toml"
    file.write_text(EMITTER + "items_per_second = 0\n")
    refused = await run_xbus(daemon, "apply", file, "--yes")
    assert refused.returncode != 0
    assert "4: items_per_second must be a whole number from 1" in refused.stdout + refused.stderr


async def test_programs_wait_and_nothing_is_lost(sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"numbers": {"c": []}, "test_event": {}})
    daemon = start_daemon(sqlite_url)
    limits = {"items_per_second": 40, "open_envelopes": 2, "calls_in_flight": 4, "bytes_in_flight": 100}
    async with OldConsumer(daemon.back, "c_1") as consumer:
        await limit(daemon, tmp_path, limits)
        receipts = [await emit(daemon, send_numbers(60), batch_items=5)]

        async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD, batch_items=5) as emitter:
            receipts += await asyncio.gather(*(emitter.put("numbers", range(number, 20)) for number in range(6)))

        outbox = tmp_path / "numbers.outbox"
        await emit(daemon, send_numbers(20), outbox=outbox, outbox_seconds=SECONDS)
        status = (await asyncio.to_thread(run, script("xbus"), "outbox", "status", outbox, "--json")).stdout
        assert json.loads(status)["waiting"] == 0

        lines = tmp_path / "numbers.csv"
        lines.write_text("number\n" + "".join(f"{number}\n" for number in range(60)))
        command = ("emit", lines, "--type", "numbers", "--url", daemon.front, "--login", "emitter_1")
        emitted = await asyncio.to_thread(run, script("xbus"), *command, env={"XBUS_PASSWORD": PASSWORD})
        assert emitted.returncode == 0, emitted.stderr

        await eventually(lambda: len(consumer.committed) == len(receipts) + 2, "all envelopes arrive")
    assert [receipt.items for receipt in receipts] == [60, *(20 - number for number in range(6))]
    assert "slow_down" in daemon.log


async def test_an_emitter_gives_up_after_retry_seconds(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"numbers": {}, "test_event": {}})
    daemon = start_daemon(sqlite_url)
    await limit(daemon, tmp_path, {"items_per_second": 1})
    await emit(daemon, send_numbers(100))
    for options in ({"retry_seconds": 2}, {"retry_seconds": 0}):
        with pytest.raises(Failed, match="more than 1 items a second") as caught:
            await emit(daemon, send_numbers(3), **options)
        assert caught.value.code == "slow_down"


async def test_an_old_emitter_gets_its_usual_refusal(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {}, "numbers": {}})
    daemon = start_daemon(sqlite_url)
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()
        await limit(daemon, tmp_path, {"items_per_second": 1, "open_envelopes": 1})
        assert await emitter.call.start_envelope(emitter.token) == ""
        sent = [await emitter.call.send_item(emitter.token, envelope_id, event_id, b"x") for _ in range(3)]
        assert sent[0] is True
        assert False in sent
        await limit(daemon, tmp_path)
        assert await emitter.call.send_item(emitter.token, envelope_id, event_id, b"x") is True
        await emitter.end(envelope_id, event_id)
    assert "slow_down" in daemon.log
