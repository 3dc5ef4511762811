"""What every test may ask for: databases of both kinds, and brokers, thrown away when the test is over."""

import gc
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, settings

from tests.support import compiled, everyday, postgres
from tests.support.daemon import Daemon, Options
from tests.support.filled import new_sqlite
from tests.support.processes import Process
from tests.support.ways import OWN_CONNECTION, PORT, WAY

SHOWN_WHEN_FAILED = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()

StartDaemon: TypeAlias = Callable[..., Daemon]
StartProcess: TypeAlias = Callable[..., Process]


OBJECTS_UNTIL_COLLECTION = 50_000
"""New objects of a process of tests between two collections of garbage; that many take about 5 MB."""

MEASURED = ("tests/unit/", "tests/contract/", "tests/integration/")
"""The beginnings of the ids of tests that run our code in their own process."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of modules whose tests are all left out."""
    return everyday.is_left_out(collection_path, config.option.markexpr) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow, keep the part that is asked for, and leave out of the coverage what starts programs."""
    everyday.mark_slow(items)
    if part := config.getoption("--part"):
        items[:], others = everyday.part_of(items, part)
        config.hook.pytest_deselected(items=others)
    for item in items:
        if not item.nodeid.startswith(MEASURED):
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have no collection of garbage walk through ten thousand tests and what they import, now or later.

    As often as Python does by default, collections took a quarter of the time of all tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(OBJECTS_UNTIL_COLLECTION)
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    ways = [OWN_CONNECTION, PORT]
    parser.addoption("--way", choices=ways, default=OWN_CONNECTION, help="how a broker calls recipients of our library")
    parser.addoption("--part", help="run the tests of one part of the modules, such as 2/3")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long for what it shows each day; see make test-slow")
    config.addinivalue_line("markers", f"{everyday.LONG}: takes seconds on each database, so every day it runs on one")
    # pytest-xdist tells its processes 80, and details that are not on a terminal are written whole.
    os.environ.pop("COLUMNS", None)
    # How long an example takes tells how busy the machine is; the first of a clone waits for a table of characters.
    settings.register_profile("at any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("at any speed")
    WAY.take(config.getoption("--way"))
    sharing = pytest.MonkeyPatch()
    compiled.share(sharing.setattr, compiled.new_cache())
    config.add_cleanup(sharing.undo)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server for the whole run."""
    try:
        with postgres.server() as server:
            yield server
    except postgres.NotFound as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the bus's schema, to be copied and never opened."""
    path = tmp_path_factory.mktemp("template") / "xbus.db"
    new_sqlite(path)
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """An SQLite file with the bus's schema."""
    return f"sqlite:///{shutil.copyfile(sqlite_template, tmp_path / 'xbus.db')}"


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> Iterator[str]:
    """A PostgreSQL database with the bus's schema."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database with the bus's schema; the test runs once for each kind."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables; the test runs once for each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    url = server.create_empty()
    yield url
    server.drop(url)


@pytest.fixture(params=[OWN_CONNECTION, PORT])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has the recipients of a test called over their own connections, and once more at their ports."""
    with WAY.taken(request.param):
        yield


@pytest.fixture
def start_daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartDaemon]:
    """Starts brokers: ``start_daemon(url, options={"front": {"max_item_bytes": 100}}, only="front")``."""
    daemons: list[Daemon] = []

    def start(url: str, options: Options | None = None, only: str | None = None, drill: bool = False) -> Daemon:
        daemon = Daemon(tmp_path / f"daemon-{len(daemons) + 1}", url, options, only, drill)
        daemons.append(daemon)
        _show_when_failed(request, f"log of broker {len(daemons)}", lambda: daemon.log)
        return daemon.start()

    yield start
    for daemon in daemons:
        daemon.kill()


@pytest.fixture
def start_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartProcess]:
    """Starts programs beside the test: ``start_process(script("xbus"), "recipient", "run", "module:Class")``."""
    processes: list[Process] = []

    def start(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Process:
        output = tmp_path / f"process-{len(processes) + 1}.log"
        process = Process(*command, output=output, cwd=cwd or tmp_path, env=env)
        processes.append(process)
        _show_when_failed(request, f"output of {' '.join(map(str, command))}", lambda: process.text)
        return process

    yield start
    for process in processes:
        process.kill()


def _show_when_failed(request: pytest.FixtureRequest, title: str, text: Callable[[], str]) -> None:
    request.node.stash.setdefault(SHOWN_WHEN_FAILED, []).append((title, text))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show below a failed test what its processes wrote."""
    report = yield
    if report.failed:
        report.sections += [(title, text()) for title, text in item.stash.get(SHOWN_WHEN_FAILED, [])]
    return report
