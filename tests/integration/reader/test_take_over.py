"""A program that dies or freezes, as a real process: another one gets its ranges within the lease and a second."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.support.bus import PASSWORD, add_bus, add_reader
from tests.support.daemon import Daemon
from tests.support.filled import new_sqlite
from tests.support.waiting import wait_until
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.readers.status import list_readers
from xbus.emitter import AsyncEmitter
from xbus.reader import AsyncReader

LEASE = 2.0
BUSY = 2.0
"""Seconds more than promised that a busy machine may take. A poll of twenty seconds is far beyond it."""

LONG_LEASE = 300.0
GONE_SECONDS = 0.5
"""Seconds until the broker's machine has seen the end of a connection. Fewer make the lease count instead."""

SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
NAMES = [f"{state}_{fate}" for state in ("idle", "reading") for fate in SIGNALS]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("take_over")
    url = new_sqlite(folder / "xbus.db")
    names = [*NAMES, "unheard"]
    add_bus(url, {name: {"store": []} for name in names})
    for name in names:
        add_reader(url, f"of_{name}", name, logins=2, ranges=1, lease=LEASE if name in NAMES else LONG_LEASE)
    daemon = Daemon(folder / "daemon", url)
    daemon.start()
    yield daemon
    daemon.kill()


@contextmanager
def program(broker: Daemon, login: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.integration.reader.reading_program", broker.back, login, PASSWORD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def has_range(broker: Daemon, login: str, name: str) -> bool:
    with reading(broker.url) as connection:
        return list_readers(connection, name)[0].ranges[0].role == login


@pytest.mark.parametrize("fate", SIGNALS)
@pytest.mark.parametrize("state", ["idle", "reading"])
async def test_another_program_takes_over_within_the_lease_and_a_second(broker: Daemon, state: str, fate: str) -> None:
    type_name = f"{state}_{fate}"
    name = f"of_{type_name}"
    async with (
        AsyncEmitter(broker.front, "emitter_1", PASSWORD) as emitter,
        AsyncReader(broker.back, f"{name}_2", PASSWORD) as other,
    ):
        with program(broker, f"{name}_1") as first:
            owned = partial(has_range, broker, f"{name}_1", name)
            await asyncio.to_thread(wait_until, owned, "the program has the range")
            if state == "reading":
                await emitter.put(type_name, [7])
                assert first.stdout is not None
                assert await asyncio.to_thread(first.stdout.readline) == "[7]\n"
            taking_over = asyncio.create_task(other.next_batch())
            # Signs of life keep the range where it is.
            await asyncio.sleep(LEASE)
            assert not taking_over.done()
            first.send_signal(SIGNALS[fate])
            taken = partial(has_range, broker, f"{name}_2", name)
            await asyncio.to_thread(wait_until, taken, "the other one has the range", LEASE + 1 + BUSY)
            if state == "idle":
                await emitter.put(type_name, [7])
            batch = await taking_over
            assert [item.value for item in batch] == [7]
            batch.done()


async def test_a_batch_that_reaches_nobody_goes_to_another_program_at_once(broker: Daemon) -> None:
    async with (
        AsyncEmitter(broker.front, "emitter_1", PASSWORD) as emitter,
        AsyncReader(broker.back, "of_unheard_2", PASSWORD) as other,
    ):
        with program(broker, "of_unheard_1") as first:
            owned = partial(has_range, broker, "of_unheard_1", "of_unheard")
            await asyncio.to_thread(wait_until, owned, "the program has the range")
            taking_over = asyncio.create_task(other.next_batch())
            first.kill()
            await asyncio.to_thread(first.wait)
            await asyncio.sleep(GONE_SECONDS)
            await emitter.put("unheard", [7])
            async with asyncio.timeout(LONG_LEASE / 10):
                batch = await taking_over
            assert [item.value for item in batch] == [7]
            batch.done()
