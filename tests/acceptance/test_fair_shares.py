"""Somebody floods the front beside an emitter that sends envelope by envelope, which keeps its pace.

Paces are compared within one run. The bus promises half of the pace. The tests ask for less, as the flooding program
takes a part of the machine, too, and others may keep it busy. Without shares a hundredth was left.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import add_bus
from tests.support.daemon import Daemon
from tests.support.flooding import Flood, logged_in
from tests.support.processes import module
from tests.support.waiting import eventually
from xbus.rpc.client import Client
from xbus.rpc.context import new_context

CHECKOUT = Path(__file__).parents[2]

LEAST_PART = 0.2
"""The part of its pace that the honest emitter must keep."""

KEPT_BESIDE_CRUMBS = 0.4
"""The same beside somebody whose messages have millions of frames: 0.6 to 0.75 is kept on two cores."""

MEASURED_SECONDS = 3.0


@asynccontextmanager
async def emitter(daemon: Daemon) -> AsyncIterator[Flood]:
    """An emitter that waits for each answer."""
    context = new_context()
    client = Client(context, name="honest")
    try:
        client.connect(daemon.front)
        yield Flood(client, await logged_in(client, "emitter_1"), 100)
    finally:
        client.close()
        context.destroy(linger=0)


async def pace(honest: Flood) -> float:
    """Send envelope by envelope for a while; give the envelopes a second."""
    count, began = 0, time.monotonic()
    while time.monotonic() < began + MEASURED_SECONDS:
        await honest.put()
        count += 1
    return count / (time.monotonic() - began)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "size"), [(1000, 100), (32, 250_000)], ids=["small envelopes", "batches"])
async def test_an_emitter_that_floods_leaves_others_their_pace(
    sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess, depth: int, size: int
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with emitter(daemon) as honest:
        await pace(honest)
        alone = await pace(honest)
        command = (*module("tests.support.flooding"), daemon.front, "emitter_1", str(depth), str(size))
        flood = start_process(*command, cwd=CHECKOUT)
        await eventually(lambda: flood.text.count("answered") > 1, "the other floods")
        beside = await pace(honest)
        assert flood.runs, flood.text
        flood.kill()
        alone = min(alone, await pace(honest))
    assert beside > LEAST_PART * alone


@pytest.mark.slow
@pytest.mark.parametrize("login", ["", "emitter_1"], ids=["stranger", "emitter"])
async def test_messages_of_millions_of_frames_leave_others_their_pace(
    login: str, sqlite_url: str, start_daemon: StartDaemon, start_process: StartProcess
) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    daemon = start_daemon(sqlite_url)
    async with emitter(daemon) as honest:
        await pace(honest)
        alone = await pace(honest)
        crumbs = start_process(*module("tests.support.crumbs"), daemon.front, login, cwd=CHECKOUT)
        await eventually(lambda: crumbs.text.count("sent") > 1, "somebody crumbles messages")
        beside = await pace(honest)
        assert crumbs.runs, crumbs.text
        crumbs.kill()
        alone = min(alone, await pace(honest))
    assert "broken_protocol" in daemon.log
    assert beside > KEPT_BESIDE_CRUMBS * alone
