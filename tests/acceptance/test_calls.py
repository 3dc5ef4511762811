"""The broker makes few calls of Python functions for an ordinary message: counted in the real process.

Each number here is a ceiling that only falls. The calls of asyncio and of the libraries count as well. Of several
rounds the one with the fewest counts: a timer may fall into any of them, and a busy machine splits groups. So a round
is repeated until one is below the ceiling.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.old_clients import OldEmitter
from tests.support.processes import module
from tests.support.waiting import eventually
from xbus.emitter import AsyncEmitter

COUNTED = Path(__file__).parents[1] / "support" / "counted"

GROUP = 100
ROUNDS = 200
PUTS = 10
"""The puts of a round, each made when the one before is answered."""

CALLS_OF_ONE = 222
"""The calls for an envelope that is alone."""

CALLS_OF_A_FURTHER_ONE = 1.0
"""The calls for each further envelope of a group."""

CALLS_OF_AN_OLD_ONE = 680
"""The calls for an envelope by the five verbs of an old client that is alone."""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="the count is asked for by a signal")
async def test_a_group_costs_few_calls_and_a_further_envelope_next_to_none(
    sqlite_url: str, tmp_path: Path, start_process: StartProcess
) -> None:
    add_bus(sqlite_url, {"orders": {"store": []}})
    told = tmp_path / "calls"
    daemon = Daemon(tmp_path / "daemon", sqlite_url).start(env={"PYTHONPATH": str(COUNTED), "XBUS_COUNT": str(told)})
    try:
        start_process(
            *module("tests.support.taking"), *(daemon.back, "store_1", "consumer"), cwd=Path(__file__).parents[2]
        )
        engine = sa.create_engine(sqlite_url)
        async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:

            async def put(number: int) -> None:
                for _ in range(PUTS):
                    receipts = await asyncio.gather(*(emitter.put("orders", [{"number": 1}]) for _ in range(number)))
                last = max(receipt.position for receipt in receipts)
                await eventually(lambda: is_settled(engine, last), "the cursor is durable")

            await put(GROUP)
            of_one = await fewest(daemon, told, partial(put, 1), CALLS_OF_ONE * PUTS) / PUTS
            enough = (of_one + CALLS_OF_A_FURTHER_ONE * (GROUP - 1)) * PUTS
            of_group = await fewest(daemon, told, partial(put, GROUP), enough) / PUTS
    finally:
        daemon.kill()
    assert of_one <= CALLS_OF_ONE
    assert (of_group - of_one) / (GROUP - 1) <= CALLS_OF_A_FURTHER_ONE


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="the count is asked for by a signal")
async def test_the_five_calls_of_an_old_client_cost_few_calls(sqlite_url: str, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"orders": {"store": []}})
    told = tmp_path / "calls"
    daemon = Daemon(tmp_path / "daemon", sqlite_url).start(env={"PYTHONPATH": str(COUNTED), "XBUS_COUNT": str(told)})
    try:
        async with OldEmitter(daemon.front) as emitter:

            async def emit() -> None:
                for _ in range(PUTS):
                    await emitter.emit(b"a", type_name="orders")

            await emit()
            of_one = await fewest(daemon, told, emit, CALLS_OF_AN_OLD_ONE * PUTS) / PUTS
    finally:
        daemon.kill()
    assert of_one <= CALLS_OF_AN_OLD_ONE


async def fewest(daemon: Daemon, told: Path, act: Callable[[], Awaitable[None]], enough: float) -> int:
    """Let the broker do something until it makes few enough calls meanwhile; give the fewest that it made."""
    found: list[int] = []
    while len(found) < ROUNDS and min(found, default=enough + 1) > enough:
        before = await calls(daemon, told)
        await act()
        found.append(await calls(daemon, told) - before)
    return min(found)


async def calls(daemon: Daemon, told: Path) -> int:
    """Ask the broker how many calls it has made."""
    told.unlink(missing_ok=True)
    daemon.process.signal(signal.SIGUSR2)
    await eventually(told.exists, "the calls are told")
    return int(told.read_text())


def is_settled(engine: sa.Engine, position: int) -> bool:
    """Check whether all roles have everything up to a position."""
    with engine.connect() as connection:
        lowest: int | None = connection.scalar(sa.text("SELECT min(position) FROM cursor"))
    return lowest is not None and lowest >= position
