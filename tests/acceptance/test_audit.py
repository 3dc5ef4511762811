"""Who logs in is in the audit of a running broker, and a session ends when its hours are over."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldEmitter
from tests.support.operating import run_command, xbus
from tests.support.waiting import answered, wait_until
from xbus.emitter import AsyncEmitter, Emitter
from xbus.errors import Refused

MOST_SECONDS = 0.7
"""How long a session lasts in these tests."""


def audited(daemon: Daemon, *options: str) -> Sequence[dict[str, Any]]:
    done = run_command("audit", "list", "-o", "json", "-c", daemon.config, *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_log_ins_are_audited(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url)
    with Emitter(daemon.front, "emitter_1", PASSWORD):
        pass
    for _ in range(5):
        with pytest.raises(Refused, match="wrong"), Emitter(daemon.front, "emitter_1", "a wrong guess"):
            pass
    daemon.stop()

    (accepted,) = audited(daemon, "--action", "login_accepted")
    assert (accepted["who"], accepted["origin"], accepted["object"]) == (
        "emitter_1",
        "127.0.0.1",
        'emitter "emitter_1"',
    )
    refused = audited(daemon, "--action", "login_refused")
    counted = [int(each["after"].split()[0]) if each["after"] else 1 for each in refused]
    assert (sum(counted), {each["who"] for each in refused}) == (5, {"emitter_1"})
    assert "guess" not in json.dumps(audited(daemon))
    assert run_command("audit", "verify", "-c", daemon.config).returncode == 0


def test_a_running_broker_keeps_the_chain_at_the_newest_row(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}}, {"c": 1})
    daemon = start_daemon(database_url)
    done = run_command("pause", "role", "c_1", "--reason", "moving house", "-c", daemon.config)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: audited(daemon, "--action", "paused")[0]["row"] is not None, "the row is in the chain")


async def test_our_emitter_goes_on_where_its_session_ends(database_url: str, start_daemon: StartDaemon) -> None:
    add_bus(database_url, {"test_event": {"c": []}})
    daemon = start_daemon(database_url, {"front": {"session_hours": MOST_SECONDS / 3600}})
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        async with emitter.envelope() as envelope, envelope.event("test_event") as event:
            for number in range(4):
                await event.send({"number": number})
                await event.flush()
                await asyncio.sleep(MOST_SECONDS * 0.6)
        receipt = envelope.receipt
    assert receipt is not None
    assert receipt.items == 4
    assert daemon.log.count("logged in") >= 2
    shown = json.loads(await xbus(daemon, "envelope", "list", "-o", "json"))
    assert (shown["state"], shown["items"]) == ("received", 4)


async def test_an_old_emitter_is_refused_when_its_session_ends(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url, {"front": {"session_hours": MOST_SECONDS / 3600}})
    async with OldEmitter(daemon.front) as emitter:
        envelope_id, event_id = await emitter.start()

        async def is_refused() -> bool:
            return not await emitter.call.send_item(emitter.token, envelope_id, event_id, b"x")

        await answered(is_refused, "the session has ended")
