"""The client as ``pip install xbusd`` brings it: with pyzmq and msgpack and nothing else, in a program of its own."""

import json
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.processes import run

LIBRARIES = ("msgpack", "pyzmq")

PROGRAM = """\
import asyncio, json, sys

from xbus.emitter import AsyncEmitter, Emitter
from xbus.recipient import Consumer, serve

front, back, password, outbox = sys.argv[1:]
taken = []


class Names(Consumer):
    def on_item(self, event, item):
        taken.append(item.value["name"])


async def until_taken(stop):
    async with asyncio.timeout(120):
        while len(taken) < 3:
            await asyncio.sleep(0.05)
    stop.set()


def send():
    with Emitter(front, "emitter_1", password) as emitter:
        emitter.put("names", [{"name": "Ada"}])
    with Emitter(front, "emitter_1", password, outbox=outbox, outbox_seconds=120) as emitter:
        emitter.put("names", [{"name": "Grace"}])


async def main():
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(Names, back, "store_1", password, stop))
    await asyncio.to_thread(send)
    async with AsyncEmitter(front, "emitter_1", password) as emitter:
        await emitter.put("names", [{"name": "Edsger"}])
    await asyncio.gather(serving, until_taken(stop))


asyncio.run(main())
libraries = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(json.dumps({"taken": taken, "libraries": sorted(libraries)}))
"""


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an installation that has the wheel and the two libraries of the client.

    These are those from where the tests run. pip looks nowhere else, so it fails where the wheel needs a third one.
    """
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python*/site-packages"))
    for library in LIBRARIES:
        found = distribution(library)
        for top in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
            (packages / top).symlink_to(Path(str(found.locate_file(top))))
    from_here = ("--no-index", "--find-links", wheel.parent)
    result = run(sys.executable, "-m", "pip", "--python", python, "install", *from_here, "xbusd")
    assert result.returncode == 0, result.stderr
    return python.parent


def test_it_sends_receives_and_queues(client: Path, sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path) -> None:
    add_bus(sqlite_url, {"names": {"store": []}})
    daemon = start_daemon(sqlite_url)
    outbox = tmp_path / "names.outbox"

    result = run(client / "python", "-c", PROGRAM, daemon.front, daemon.back, PASSWORD, outbox, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert sorted(told["taken"]) == ["Ada", "Edsger", "Grace"]
    named = {name for name in told["libraries"] if not name.startswith(("_", "cython"))}
    assert named == {"msgpack", "xbus", "zmq"}


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        ("setup_xbusbroker", "broker"),
        ("start_xbusbroker", "broker"),
        ("xbus", "broker"),
        ("xbus-spark-worker", "spark"),
    ],
)
def test_a_program_that_lacks_an_extra_says_so_in_a_line(
    client: Path, tmp_path: Path, program: str, extra: str
) -> None:
    result = run(client / program, "--help", cwd=tmp_path)

    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{program}: the ")
    assert line.endswith(f", which is not installed: pip install 'xbusd[{extra}]' [extra_missing]")


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("xbus.recipient.inbox", "inbox"),
        ("xbus.broker.journal.log.planning", "broker"),
        ("xbus.admin", "broker"),
        ("spark_worker", "spark"),
    ],
)
def test_a_module_that_lacks_an_extra_says_so_in_a_line(client: Path, tmp_path: Path, module: str, extra: str) -> None:
    command = ("-m", module) if module in ("xbus.admin", "spark_worker") else ("-c", f"import {module}")

    result = run(client / "python", *command, cwd=tmp_path)

    assert result.returncode == 1
    assert [
        line for line in result.stderr.splitlines() if f"which is not installed: pip install 'xbusd[{extra}]'" in line
    ]
