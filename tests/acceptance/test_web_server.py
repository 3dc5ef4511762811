"""The examples of docs/web-server.md under real web servers: each worker process sends by itself."""

import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.daemon import Daemon
from tests.support.documentation import CHECKOUT
from tests.support.ports import free_port
from tests.support.processes import Process, module, script
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from xbus.broker.journal.configuration.writing import add_demo_rows
from xbus.broker.journal.database.connection import writing
from xbus.emitter.outbox import Outbox

EXAMPLES = CHECKOUT / "examples"
WORKERS = 2
REQUESTS = 8


@pytest.fixture
def broker(start_daemon: StartDaemon, sqlite_url: str) -> Daemon:
    with writing(sqlite_url) as connection:
        add_demo_rows(connection)
    return start_daemon(sqlite_url)


@pytest.fixture
def port() -> int:
    return free_port()


def post(port: int, name: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=name.encode())
    with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
        return str(answer.read().decode())


def gunicorn(port: int, *arguments: str) -> list[str]:
    where = ("--bind", f"127.0.0.1:{port}", "--chdir", str(EXAMPLES), "--no-control-socket")
    return [*module("gunicorn"), "--workers", str(WORKERS), *where, *arguments]


def answers_of_each_worker(server: Process, port: int) -> list[str]:
    """Post names until each worker process has answered; all answers."""
    answers: list[str] = []

    def listens() -> bool:
        assert server.runs, server.text
        try:
            answers.append(post(port, "first"))
        except (URLError, ConnectionError):
            return False
        return True

    def each_has_answered() -> bool:
        with ThreadPoolExecutor(REQUESTS) as threads:
            answers.extend(threads.map(lambda number: post(port, f"name {number}"), range(REQUESTS)))
        return len({re.search(r"process (\d+)", answer)[1] for answer in answers}) == WORKERS  # type: ignore[index]

    wait_until(listens, "the server answers")
    wait_until(each_has_answered, f"each of the {WORKERS} workers answers")
    return answers


def positions(answers: list[str]) -> list[int]:
    return sorted(int(re.search(r"position (\d+)", answer)[1]) for answer in answers)  # type: ignore[index]


@pytest.mark.parametrize("options", [[], ["--preload"], ["--preload", "--threads", "4"]], ids=" ".join)
def test_each_worker_of_gunicorn_sends(
    broker: Daemon, start_process: StartProcess, port: int, options: list[str]
) -> None:
    server = start_process(*gunicorn(port, *options, "web_server:application"), env={"XBUS_FRONT": broker.front})

    answers = answers_of_each_worker(server, port)

    assert positions(answers) == list(range(1, len(answers) + 1))
    assert server.stop() == 0
    assert "Traceback" not in server.text


def test_each_worker_of_uvicorn_sends(broker: Daemon, start_process: StartProcess, port: int) -> None:
    where = ("--port", str(port), "--app-dir", EXAMPLES, "--workers", str(WORKERS))
    server = start_process(script("uvicorn"), *where, "asgi_server:application", env={"XBUS_FRONT": broker.front})

    answers = answers_of_each_worker(server, port)

    assert positions(answers) == list(range(1, len(answers) + 1))
    assert server.stop() == 0
    assert "Traceback" not in server.text


def test_each_worker_has_an_outbox_and_the_next_ones_send_what_is_left(
    broker: Daemon, start_process: StartProcess, port: int, tmp_path: Path
) -> None:
    outboxes = [tmp_path / f"{number}.outbox" for number in (1, 2)]
    environment = {"XBUS_FRONT": broker.front, "OUTBOXES": str(tmp_path)}
    command = gunicorn(port, "web_outbox:application")
    broker.kill()
    server = start_process(*command, env=environment)
    answers = answers_of_each_worker(server, port)
    assert sorted(tmp_path.glob("*.outbox")) == outboxes
    assert server.stop() == 0
    assert sum(waiting(path) for path in outboxes) == len(answers)

    broker.start()
    server = start_process(*command, env=environment)

    wait_until(lambda: all(waiting(path) == 0 for path in outboxes), "the outboxes are emptied")
    assert server.stop() == 0
    assert "Traceback" not in server.text


def waiting(path: Path) -> int:
    outbox = Outbox.existing(path)
    try:
        return outbox.status().waiting
    finally:
        outbox.close()
