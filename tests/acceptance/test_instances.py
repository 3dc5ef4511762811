"""Several programs of one role: they share its envelopes, and one stands by for another; with the real daemon."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.operating import xbus
from tests.support.processes import Process, run, script
from tests.support.serving import serving
from tests.support.waiting import answered, eventually
from tests.support.ways import WAY
from xbus import model
from xbus.broker.journal.database.connection import writing
from xbus.emitter import AsyncEmitter
from xbus.recipient import Consumer, Envelope


def place_for(url: str, instances: int, **values: Any) -> None:
    with writing(url) as connection:
        connection.execute(sa.update(model.role).values(instances=instances, **values))


class Counts(Consumer):
    """Keeps the envelopes that it committed, in their order, and works for a moment on each."""

    def __init__(self, seconds: float = 0.001) -> None:
        self.committed: list[str] = []
        self._seconds = seconds

    async def on_event_end(self, event: object) -> None:
        await asyncio.sleep(self._seconds)

    def commit(self, envelope: Envelope) -> None:
        self.committed.append(envelope.id)


async def put(daemon: Daemon, envelopes: int, keys: int = 0) -> list[str]:
    async with AsyncEmitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        receipts = [
            await emitter.put("test_event", [str(number).encode()], ordering_key=str(number % keys) if keys else None)
            for number in range(envelopes)
        ]
    return [str(receipt.envelope_id) for receipt in receipts]


async def test_two_programs_share_the_envelopes_of_their_role(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    place_for(sqlite_url, 2)
    daemon = start_daemon(sqlite_url)
    programs = [Counts(), Counts()]
    async with AsyncExitStack() as stack:
        for program in programs:
            await stack.enter_async_context(serving(daemon, "c_1", program))
        sent = await put(daemon, 200)
        await eventually(lambda: sum(len(program.committed) for program in programs) >= 200, "all are committed")
        assert sorted(sent) == sorted([*programs[0].committed, *programs[1].committed])
        assert all(len(program.committed) > 20 for program in programs)


PROGRAM = """\
import os
import time

from xbus.recipient import Consumer


class Tells(Consumer):
    def on_event_end(self, event):
        time.sleep(0.001)

    def commit(self, envelope):
        # Several processes write to one file: a line is one write.
        os.write(1, f"committed {os.getpid()} {envelope.id}\\n".encode())
"""


SOON = {"heartbeat": 1, "node.polling.interval": 1, "node.polling.timeout": 1, "node.misses.threshold": 2}


class Programs:
    """Processes of the recipient above, as ``xbus recipient run`` starts them."""

    def __init__(self, daemon: Daemon, folder: Path, start_process: StartProcess) -> None:
        (folder / "tells.py").write_text(PROGRAM)
        self._daemon = daemon
        self._folder = folder
        self._start_process = start_process
        self.started: list[Process] = []

    def command(self, *options: str) -> list[str]:
        of_role = ["--back", self._daemon.back, "--login", "c_1", *WAY.options]
        return [script("xbus"), "recipient", "run", "tells:Tells", *of_role, *options]

    def start(self, *options: str) -> Process:
        process = self._start_process(*self.command(*options), cwd=self._folder, env={"XBUS_PASSWORD": PASSWORD})
        self.started.append(process)
        return process

    def committed(self) -> dict[str, list[str]]:
        """The envelopes that each process has committed, by its id."""
        found: dict[str, list[str]] = {}
        for process in self.started:
            for line in process.text.splitlines():
                if line.startswith("committed "):
                    _, pid, envelope_id = line.split()
                    found.setdefault(pid, []).append(envelope_id)
        return found

    def all_committed(self) -> list[str]:
        return sorted(envelope_id for of_one in self.committed().values() for envelope_id in of_one)


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_bus(sqlite_url, {"test_event": {"c": []}})
    place_for(sqlite_url, 3)
    return start_daemon(sqlite_url, {"supervision": SOON})


@pytest.fixture
def programs(daemon: Daemon, tmp_path: Path, start_process: StartProcess) -> Programs:
    return Programs(daemon, tmp_path, start_process)


async def instances(daemon: Daemon) -> list[dict[str, Any]]:
    """The programs of the role, as an operator sees them."""
    (role,) = [json.loads(line) for line in (await xbus(daemon, "recipient", "list", "-o", "json")).splitlines()]
    found: list[dict[str, Any]] = role["instances"]
    return found


async def until_states(daemon: Daemon, *states: str) -> list[dict[str, Any]]:
    """The programs of the role, as soon as they are in these states."""

    async def look() -> tuple[list[dict[str, Any]]] | None:
        found = await instances(daemon)
        return (found,) if sorted(each["state"] for each in found) == sorted(states) else None

    found = await answered(look, f"they are {states}")
    assert found is not None
    return found[0]


async def test_one_command_runs_several_processes_and_ends_them_all(daemon: Daemon, programs: Programs) -> None:
    supervisor = programs.start("--instances", "3")
    await until_states(daemon, "present", "present", "present")
    sent = await put(daemon, 300)
    await eventually(lambda: len(programs.all_committed()) >= 300, "all are committed")
    assert programs.all_committed() == sorted(sent)
    assert len(programs.committed()) == 3
    shown = await xbus(daemon, "recipient", "list")
    assert len([line for line in shown.splitlines() if line.startswith("- ")]) == 3
    assert await asyncio.to_thread(supervisor.stop) == 0
    await until_states(daemon)


async def test_one_that_is_killed_ends_the_others_and_loses_nothing(daemon: Daemon, programs: Programs) -> None:
    supervisor = programs.start("--instances", "2")
    beside = programs.start()
    await until_states(daemon, "present", "present", "present")
    sent = await put(daemon, 200)
    await eventually(lambda: len(programs.committed()) == 3, "each has some")
    victim = next(pid for pid in programs.committed() if f"committed {pid}" in supervisor.text)
    os.kill(int(victim), signal.SIGKILL)
    assert await asyncio.to_thread(supervisor.wait) == 1
    assert "ended with code -9" in supervisor.text
    await eventually(lambda: set(programs.all_committed()) == set(sent), "all are committed")
    assert beside.runs


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_one_that_stands_by_takes_over(
    daemon: Daemon, programs: Programs, sqlite_url: str, number: signal.Signals
) -> None:
    await asyncio.to_thread(daemon.stop)
    place_for(sqlite_url, 1, standby=True)
    await asyncio.to_thread(daemon.start)
    first = programs.start()
    await until_states(daemon, "present")
    second = programs.start()
    await until_states(daemon, "present", "standby")
    await eventually(lambda: "standing by" in second.text, "it says that it waits")
    sent = await put(daemon, 50)
    await eventually(lambda: len(programs.all_committed()) >= 50, "all are committed")
    assert "committed" not in second.text
    first.signal(number)
    sent += await put(daemon, 50)
    await eventually(lambda: set(programs.all_committed()) >= set(sent), "the other one has taken over")
    await eventually(lambda: "taking over" in second.text, "it says so")
    if number is signal.SIGSTOP:
        # It comes back, and stands by in its turn.
        first.signal(signal.SIGCONT)
        await until_states(daemon, "present", "standby")


async def test_they_are_all_there_again_after_a_crash_of_the_broker(daemon: Daemon, programs: Programs) -> None:
    programs.start("--instances", "3")
    await until_states(daemon, "present", "present", "present")
    sent = await put(daemon, 100)
    daemon.kill()
    await asyncio.to_thread(daemon.start)
    sent += await put(daemon, 100)
    await eventually(lambda: set(programs.all_committed()) == set(sent), "all are committed")
    await until_states(daemon, "present", "present", "present")


@pytest.mark.parametrize(
    ("option", "cause"),
    [
        (("--bind", "tcp://127.0.0.1:4999"), "several processes can't listen at tcp://127.0.0.1:4999"),
        (("--advertise", "tcp://here:4999"), "several processes can't be called at tcp://here:4999"),
    ],
)
async def test_processes_need_addresses_of_their_own(
    programs: Programs, tmp_path: Path, option: tuple[str, str], cause: str
) -> None:
    command = programs.command("--instances", "2", *option)
    ended = await asyncio.to_thread(run, *command, cwd=tmp_path, env={"XBUS_PASSWORD": PASSWORD})
    assert (ended.returncode, cause in ended.stderr) == (1, True)
