"""The monitor beside a broker that runs: it shows what comes and who is behind, tells open pages, and stops at once."""

import asyncio
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import add_bus
from tests.support.processes import Process, script
from tests.support.sdk import emit
from tests.support.waiting import answered, wait_until
from xbus.broker.journal.database.connection import reading, writing
from xbus.broker.journal.people import add_person, add_token
from xbus.broker.journal.samples.sample import STEP, read_newest
from xbus.clock import SystemClock
from xbus.emitter import Emitter
from xbus.rights import Right

NEWS, END = b"event: sample\n", b"event: end\n"


class Watcher:
    """A program with a token that asks the monitor.

    Args:
        address: the monitor's.
        token: the program's.
    """

    def __init__(self, address: str, token: str) -> None:
        self._place = urlsplit(address).netloc
        self._headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str) -> str:
        """Fetch a page."""
        with self.open(path) as answer:
            assert answer.status == 200
            return answer.read().decode()

    @contextmanager
    def open(self, path: str) -> Iterator[http.client.HTTPResponse]:
        """Ask for a path, and leave the connection at the end."""
        connection = http.client.HTTPConnection(self._place, timeout=60)
        with closing(connection):
            connection.request("GET", path, headers=self._headers)
            with connection.getresponse() as answer:
                yield answer

    def events(self) -> Iterator[bytes]:
        """The events of a stream, as they come."""
        with self.open("/live") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield from (line for line in answer if line.startswith(b"event:"))


def token_of(url: str) -> str:
    """Add a program that may look."""
    now = SystemClock().now()
    with writing(url) as connection:
        person = add_person(connection, "watcher", (Right.VIEWER,), None, now)
        return add_token(connection, person.id, "test", (), None, now)


async def start_monitor(start_process: StartProcess, config: Path, folder: Path) -> tuple[Process, str]:
    """Start a monitor; gives its address, too."""
    ready = folder / "monitor.json"
    env = {"XBUS_MONITOR__LISTEN": "127.0.0.1:0"}
    process = start_process(script("start_xbusmonitor"), "-c", config, "--ready-file", ready, env=env)
    await asyncio.to_thread(wait_until, ready.exists, "the monitor serves")
    found = re.search(r"http://[^\"]+", ready.read_text())
    assert found is not None, json.loads(ready.read_text())
    return process, found[0]


def send(emitter: Emitter) -> None:
    for number in range(3):
        emitter.put("orders", [{"number": number}])


async def test_open_pages_follow_the_bus(
    start_daemon: StartDaemon, start_process: StartProcess, database_url: str, tmp_path: Path
) -> None:
    add_bus(database_url, {"orders": {"shop": []}})
    token = token_of(database_url)
    daemon = start_daemon(database_url)
    process, address = await start_monitor(start_process, daemon.config, tmp_path)
    watcher = Watcher(address, token)
    events = watcher.events()
    assert await asyncio.to_thread(next, events) == NEWS
    await emit(daemon, send)

    async def shows_the_lag() -> bool:
        return "lacks 3 envelopes" in await asyncio.to_thread(watcher.get, "/live/graph")

    assert await asyncio.to_thread(next, events) == NEWS
    await answered(shows_the_lag, "the role lacks what came")
    assert "does not answer" not in await asyncio.to_thread(watcher.get, "/live/decisions")
    assert 'class="line"' in await asyncio.to_thread(watcher.get, "/live/plots")
    with reading(database_url) as connection:
        newest = read_newest(connection)
    assert newest is not None
    assert (newest.step, newest.lag) == (STEP, 3)

    rest = asyncio.create_task(asyncio.to_thread(list, events))
    assert await asyncio.to_thread(process.stop) == 0
    assert (await rest)[-1] == END
    assert "Traceback" not in process.text


async def test_a_stranger_gets_no_stream(
    start_process: StartProcess, start_daemon: StartDaemon, sqlite_url: str, tmp_path: Path
) -> None:
    daemon = start_daemon(sqlite_url)
    _, address = await start_monitor(start_process, daemon.config, tmp_path)
    with Watcher(address, "no token").open("/live") as answer:
        assert answer.status in (303, 401)
