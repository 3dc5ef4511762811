"""The programs of examples/node, in JavaScript, with a real broker: written from ``docs/wire.md`` alone."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import add_demo
from tests.support.daemon import Daemon, told_address
from tests.support.listening import listening_ports
from tests.support.processes import Process
from tests.support.waiting import eventually

FOLDER = Path(__file__).parents[2] / "examples/node"
NODE = shutil.which("node")
DIRECT = ["Ada", "Grace", "Edsger"]

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="no node to test with"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules/zeromq").exists(),
        reason="the packages of examples/node are not installed: make node-packages",
    ),
]


@pytest.fixture
def daemon(sqlite_url: str, start_daemon: StartDaemon) -> Daemon:
    add_demo(sqlite_url)
    return start_daemon(sqlite_url)


@pytest.fixture
def start(start_process: StartProcess) -> "Start":
    return Start(start_process)


class Start:
    """Starts a program of the folder."""

    def __init__(self, start_process: StartProcess) -> None:
        self._start_process = start_process

    def __call__(self, name: str, *arguments: str) -> Process:
        assert NODE is not None
        return self._start_process(NODE, FOLDER / name, *arguments)


def names(consumer: Process) -> list[str]:
    """The clients that a consumer has printed."""
    return [line.removeprefix("client: ") for line in consumer.text.splitlines() if line.startswith("client: ")]


async def _send(start: Start, daemon: Daemon) -> None:
    emitter = start("emitter.js", daemon.front)
    assert await asyncio.to_thread(emitter.wait) == 0, emitter.text
    assert "sealed at position" in emitter.text


async def test_an_emitter_a_worker_and_a_consumer(daemon: Daemon, start: Start) -> None:
    consumer, worker = start("consumer.js", daemon.back), start("worker.js", daemon.back)
    await _send(start, daemon)
    expected = sorted([*DIRECT, *(name.upper() for name in DIRECT)])
    await eventually(lambda: sorted(names(consumer)) == expected, "the consumer gets both")
    assert listening_ports(consumer.pid) == set()
    assert consumer.stop() == 0, consumer.text
    assert worker.stop() == 0, worker.text
    assert "it logged out" in daemon.log


async def test_they_come_back_to_a_broker_that_was_away(daemon: Daemon, start: Start) -> None:
    consumer, worker = start("consumer.js", daemon.back), start("worker.js", daemon.back)
    await eventually(lambda: "registered" in consumer.text and "registered" in worker.text, "both register")
    daemon.kill()
    daemon.start()
    await _send(start, daemon)
    await eventually(lambda: len(names(consumer)) == 2 * len(DIRECT), "the consumer gets both")
    await eventually(lambda: consumer.text.count("registered") == 2, "it has registered twice")
    assert daemon.log.count("role=consumer_role") >= 2
    assert daemon.log.count("logged in action=login role=consumer_role") == 1, "its token was still valid"


async def test_a_wrong_password_ends_it(daemon: Daemon, start: Start) -> None:
    consumer = start("consumer.js", daemon.back, "consumer_role", "wrong")
    assert await asyncio.to_thread(consumer.wait) == 1
    assert "login_refused" in consumer.text


async def test_they_find_the_broker_that_leads(postgres_url: str, tmp_path: Path, start: Start) -> None:
    add_demo(postgres_url)
    pair = [Daemon(tmp_path / name, postgres_url, {"broker": {"standby": "true"}}) for name in ("first", "second")]
    try:
        pair[0].start()
        pair[1].begin()
        await eventually(lambda: "standing by" in pair[1].log, "the second one stands by")
        # The one that stands by comes first. Behind the crash the consumer may get the first envelopes again.
        front, back = (",".join(told_address(each, part) for each in pair[::-1]) for part in ("front", "back"))
        consumer, worker = start("consumer.js", back), start("worker.js", back)
        for lives, leader in enumerate(pair, 1):
            await eventually(lambda lives=lives: consumer.text.count("registered") == lives, "it registers")  # type: ignore[misc]
            await eventually(lambda lives=lives: worker.text.count("registered") == lives, "it registers")  # type: ignore[misc]
            emitter = start("emitter.js", front)
            assert await asyncio.to_thread(emitter.wait) == 0, emitter.text
            await eventually(lambda lives=lives: len(names(consumer)) >= 2 * len(DIRECT) * lives, "it gets both")  # type: ignore[misc]
            leader.kill()
    finally:
        for each in pair:
            each.kill()
