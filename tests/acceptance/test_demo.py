"""``make demo`` as its user meets it: all is there, or it says what is not; nothing of it is left behind."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import StartProcess
from tests.support.demo import demo_folder, download_flights, figures
from tests.support.documentation import CHECKOUT
from tests.support.processes import Process, module, run
from tests.support.waiting import wait_until

DEMO = module("examples.demo")
FLIGHTS = "3000"


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return download_flights(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def folder(tmp_path: Path, download: Path) -> Iterator[Path]:
    with demo_folder(tmp_path, download, "run") as folder:
        yield folder


def demo(folder: Path, database: str = "") -> str:
    """What a demo tells that went well."""
    options = ("--folder", folder, "--flights", FLIGHTS)
    done = run(*DEMO, *options, cwd=CHECKOUT, env={"DB": database})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_arrives(folder: Path) -> None:
    told = demo(folder)

    assert figures(told) == {
        "airlines and flights sent": ("3,016", "ok"),
        "airlines stored": ("16", "ok"),
        "flights stored": ("2,978", "ok"),
        "airlines with all flights, miles": ("15", "ok"),
        "flights counted": ("2,978", "ok"),
        "late flights counted": ("1,314", "ok"),
        "airlines with all delays, minutes": ("16", "ok"),
    }
    assert str(folder / "run" / "flights.db") in told


@pytest.mark.slow
def test_it_runs_on_postgresql_again_and_again(folder: Path, postgres_url: str) -> None:
    url = postgres_url.replace("+psycopg2", "")
    for _ in range(2):
        assert {verdict for _, verdict in figures(demo(folder, url)).values()} == {"ok"}
    assert "postgresql" in (folder / "run" / "config.ini").read_text()


@pytest.fixture
def running(folder: Path, start_process: StartProcess) -> Process:
    """A demo in the midst of sending all flights."""
    process = start_process(*DEMO, "--folder", folder, cwd=CHECKOUT)
    last_one = folder / "run" / "delay_counter_1.log"
    wait_until(lambda: last_one.exists() or not process.runs, "all programs are started")
    return process


def test_interrupted_it_ends_all_its_programs(running: Process) -> None:
    running.signal(signal.SIGINT)

    assert running.wait() == 130
    assert "Traceback" not in running.text


@pytest.mark.parametrize("name", ["start_xbusbroker", "FlightStore"])
def test_it_fails_when_one_of_its_programs_dies(running: Process, folder: Path, name: str) -> None:
    (victim,) = (child for child in psutil.Process(running.pid).children() if name in " ".join(child.cmdline()))
    victim.kill()

    assert running.wait() == 1
    assert "ended by itself with exit code -9" in running.text


def test_it_fails_without_a_database(folder: Path) -> None:
    options = ("--folder", folder, "--flights", FLIGHTS)
    done = run(*DEMO, *options, cwd=CHECKOUT, env={"DB": "postgresql://xbus:secret@127.0.0.1:1/xbus"})

    assert done.returncode == 1
    assert "The demo failed: setup_xbusbroker" in done.stderr
    assert "secret" not in done.stderr
