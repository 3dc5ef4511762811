"""Long work is told from death: by heartbeats with the real broker, and recipients as processes that are stopped."""

import asyncio
import itertools
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Options
from tests.support.processes import Process, script
from tests.support.sdk import emit, send_numbers
from tests.support.serving import serving
from tests.support.showing import become, shown
from tests.support.waiting import DEADLINE_SECONDS, answered, eventually, wait_until
from tests.support.ways import WAY
from xbus.admin.cli import main
from xbus.broker.journal.database.connection import reading
from xbus.broker.journal.operations.roles import RoleStatus, list_roles
from xbus.recipient import Batch, Consumer, Envelope, Event
from xbus.states import PresenceState

SILENCE_SECONDS = 3
"""Nobody is given up because the machine stood still for a moment."""

OPTIONS: Options = {
    "back": {f"{verb}_timeout": SILENCE_SECONDS for verb in ("send_item", "end_event", "end_envelope")},
    "supervision": {"heartbeat": 0.1, "node.polling.interval": 0.5, "node.polling.timeout": SILENCE_SECONDS},
}

CONSUMER = """
import sys
from xbus.recipient import Consumer

class Notes(Consumer):
    def on_item(self, event, item):
        print("item", item.value, flush=True)

    def commit(self, envelope):
        print("committed", envelope.id, flush=True)

    def rollback(self, envelope):
        print("rolled back", envelope.id, flush=True)
"""


class Long(Consumer):
    """Works on a batch until the test says that it is enough, and tells how far it is, or not."""

    def __init__(self, *, tells: bool) -> None:
        self.tells = tells
        self.begun = threading.Event()
        self.enough = threading.Event()
        self.committed: list[str] = []
        self.rolled_back: list[str] = []

    async def on_batch(self, event: Event, batch: Batch) -> None:
        self.begun.set()
        for step in itertools.count():
            if self.enough.is_set():
                return
            await asyncio.sleep(0.1)
            if self.tells:
                event.progress(step)

    def commit(self, envelope: Envelope) -> None:
        self.committed.append(envelope.id)

    def rollback(self, envelope: Envelope) -> None:
        self.rolled_back.append(envelope.id)


@pytest.mark.usefixtures("each_way")
async def test_a_long_call_with_progress_outlives_the_time_out(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"numbers": {"store": []}})
    daemon = start_daemon(sqlite_url, OPTIONS)
    long = Long(tells=True)
    async with serving(daemon, "store_1", long):
        receipt = await emit(daemon, send_numbers(3))
        await eventually(long.begun.is_set, "it works")
        await asyncio.sleep(1.5 * SILENCE_SECONDS)
        long.enough.set()
        await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert (long.committed, long.rolled_back) == ([receipt.envelope_id], [])
    assert shown(sqlite_url, receipt.envelope_id).failures == ()


@pytest.mark.usefixtures("each_way")
async def test_a_call_without_progress_is_given_up(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"numbers": {"store": []}})
    daemon = start_daemon(sqlite_url, OPTIONS)
    hangs = Long(tells=False)
    async with serving(daemon, "store_1", hangs):
        receipt = await emit(daemon, send_numbers(3))
        given_up = lambda: shown(sqlite_url, receipt.envelope_id).failures  # noqa: E731
        await answered(lambda: asyncio.to_thread(given_up), "it is given up")
        assert not hangs.committed
        assert "recipient left" not in daemon.log, "it lives, only its work does not get on"
        hangs.enough.set()
        await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert {failure.code for failure in shown(sqlite_url, receipt.envelope_id).failures} == {"timed_out"}


@pytest.fixture
def run_notes(tmp_path: Path, start_process: StartProcess) -> Callable[[str], Process]:
    """Runs a consumer for ``store_1`` in a process of its own."""
    (tmp_path / "notes.py").write_text(CONSUMER)
    (tmp_path / "password").write_text(PASSWORD)

    def start(back: str) -> Process:
        options = ["--login", "store_1", "--password-file", "password", "--back", back, *WAY.options]
        return start_process(script("xbus"), "recipient", "run", "notes:Notes", *options, cwd=tmp_path)

    return start


@pytest.mark.usefixtures("each_way")
async def test_a_stopped_process_is_noticed_and_what_it_had_comes_again(
    sqlite_url: str, start_daemon: StartDaemon, run_notes: Callable[[str], Process]
) -> None:
    add_bus(sqlite_url, {"numbers": {"store": []}})
    # Its calls may take as long as they like: it is the silence that tells.
    daemon = start_daemon(sqlite_url, {"supervision": OPTIONS["supervision"]})
    notes = run_notes(daemon.back)
    # One that does not know yet that it is registered would register once more when it wakes up, and take the role.
    await asyncio.to_thread(wait_until, lambda: "recipient_registered" in notes.text, "it is registered")
    notes.signal(signal.SIGSTOP)
    receipt = await emit(daemon, send_numbers(3))
    await asyncio.to_thread(wait_until, lambda: "pings in a row" in daemon.log, "it is taken off the list")
    second = run_notes(daemon.back)
    await become(sqlite_url, receipt.envelope_id, store_1="done")
    assert f"committed {receipt.envelope_id}" in second.text
    # The first wakes up, finds that another one has its role, and ends with a reason.
    notes.signal(signal.SIGCONT)
    assert await asyncio.to_thread(notes.wait) == 1
    assert "another recipient has registered for the same role" in notes.text
    assert daemon.log.count("pings in a row") == 1
    assert second.runs


class Paged(Consumer):
    """Stands still at the third of twelve pages until the test lets it go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def on_batch(self, event: Event, batch: Batch) -> None:
        event.progress(3, 12)
        assert self.goes_on.wait(DEADLINE_SECONDS)


async def test_operators_see_who_is_there_and_what_they_work_on(sqlite_url: str, start_daemon: StartDaemon) -> None:
    add_bus(sqlite_url, {"numbers": {"store": []}}, {"store": 2})
    daemon = start_daemon(sqlite_url, {"supervision": {"heartbeat": 0.1}})

    def xbus(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "-c", str(daemon.config)])

    paged = Paged()
    async with serving(daemon, "store_1", paged):
        receipt = await emit(daemon, send_numbers(3))

        def role() -> RoleStatus:
            with reading(sqlite_url) as connection:
                return next(role for role in list_roles(connection) if role.role == "store_1")

        await eventually(lambda: any(work.get("done") for work in role().work), "its work is written down")
        listed = await asyncio.to_thread(xbus, "recipient", "list", "--json")
        present, absent = map(json.loads, listed.stdout.splitlines())
        assert (present["role"], present["state"], present["lag"]) == ("store_1", "present", 1)
        (work,) = present["work"]
        assert (work["envelope_id"], work["position"], work["verb"]) == (receipt.envelope_id, 1, "take_event")
        assert (work["done"], work["of"], work["progress"]) == (3, 12, 0.25)
        assert (absent["role"], absent["state"], absent["seen_at"], absent["lag"]) == ("store_2", "absent", None, 1)
        assert absent["lag_seconds"] > 0
        shown = await asyncio.to_thread(xbus, "recipient", "list")
        assert shown.stdout.splitlines()[1].endswith("1: 25 %")
        shown = await asyncio.to_thread(xbus, "recipient", "list", "-o", "wide")
        assert "1: take_event 25 %" in shown.stdout
        refused = await asyncio.to_thread(xbus, "recipient", "detach", "store_1", "--reason", "why", "--yes")
        assert (refused.exit_code, "a recipient serves the role" in refused.stderr) == (1, True)
        paged.goes_on.set()
        await become(sqlite_url, receipt.envelope_id, store_1="done")
    healthy = await asyncio.to_thread(xbus, "health")
    assert (healthy.exit_code, healthy.stdout.startswith("The broker has been healthy since ")) == (0, True)
    assert daemon.stop() == 0
    with reading(sqlite_url) as connection:
        assert {role.state for role in list_roles(connection)} == {PresenceState.ABSENT}
    assert (await asyncio.to_thread(xbus, "health")).exit_code == 3
