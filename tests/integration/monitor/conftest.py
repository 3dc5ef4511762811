"""The monitor, asked as a browser does, over a journal of its own."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx2 import Response

from tests.integration.admin.parked_bus import ParkedBus, make_parked_bus
from tests.support.daemon import write_config
from tests.support.ports import free_port
from xbus.broker.journal.database.connection import ConnectionPool, writing
from xbus.broker.journal.people import add_person, add_token
from xbus.clock import SystemClock
from xbus.config import load
from xbus.monitor.bus import BusAccess
from xbus.monitor.program import build_frame, show
from xbus.passwords import Passwords
from xbus.rights import Right

PASSWORD = "correct horse"
CHEAP = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))

Enter = Callable[..., TestClient]


@dataclass(frozen=True)
class Monitor:
    """A monitor without a port, and the journal that it shows."""

    url: str
    bus: BusAccess
    visit: Callable[[], TestClient]

    def add(self, name: str, *rights: Right) -> None:
        """Add a person whose password is :data:`PASSWORD`."""
        with writing(self.url) as connection:
            add_person(connection, name, rights, CHEAP.hash_password(PASSWORD), SystemClock().now())

    def enter(self, name: str) -> TestClient:
        """A browser in which a person is logged in."""
        browser = self.visit()
        answer = log_in(browser, name)
        assert answer.status_code == 303, answer.text
        return browser

    def program(self, name: str, *rights: Right) -> TestClient:
        """A program that acts for a new person."""
        with writing(self.url) as connection:
            now = SystemClock().now()
            person = add_person(connection, name, rights, None, now)
            token = add_token(connection, person.id, "test", rights, None, now)
        client = self.visit()
        client.headers["authorization"] = f"Bearer {token}"
        return client


def log_in(browser: TestClient, name: str, password: str = PASSWORD, **fields: str) -> Response:
    """Send the form of the log-in."""
    return browser.post("/log-in", data={"name": name, "password": password, **fields}, follow_redirects=False)


@pytest.fixture(scope="session")
def parked_template(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> ParkedBus:
    """A journal with envelopes that are parked, to be copied."""
    path = tmp_path_factory.mktemp("parked") / "xbus.db"
    return make_parked_bus(f"sqlite:///{shutil.copyfile(sqlite_template, path)}")


@pytest.fixture
def database_url(request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path) -> str:
    """Databases differ in statements only, which the contracts of the journal test on each of them."""
    template = str(sqlite_template)
    if "parked" in request.fixturenames:
        template = request.getfixturevalue("parked_template").url.removeprefix("sqlite:///")
    return f"sqlite:///{shutil.copyfile(template, tmp_path / 'xbus.db')}"


@pytest.fixture
def parked(database_url: str, parked_template: ParkedBus) -> ParkedBus:
    """A journal with envelopes that are parked."""
    return replace(parked_template, url=database_url)


@pytest.fixture(scope="session")
def frame() -> FastAPI:
    """Three hundred routes are described once, and show the bus of one test after another."""
    return build_frame()


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    """The event loop of all monitors, as a client without one starts a thread and a loop for each request."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def monitor(database_url: str, tmp_path: Path, frame: FastAPI, portal: BlockingPortal) -> Iterator[Monitor]:
    """A monitor beside a broker that does not run."""
    zmq = {f"{part}socket": f"tcp://127.0.0.1:{free_port()}" for part in ("front", "back")}
    config = load(write_config(tmp_path / "config.ini", database_url, {"zmq": zmq}))
    journal = ConnectionPool(database_url)
    bus = BusAccess(config, journal, SystemClock(), CHEAP)
    show(frame, bus, is_encrypted=False)

    def visit() -> TestClient:
        client = TestClient(frame, "http://monitor", raise_server_exceptions=False)
        client.portal = portal
        return client

    yield Monitor(database_url, bus, visit)
    journal.close()


@pytest.fixture
def operator(monitor: Monitor) -> TestClient:
    """The browser of a person who may repair."""
    monitor.add("ada", Right.OPERATOR)
    return monitor.enter("ada")


@pytest.fixture
def viewer(monitor: Monitor) -> TestClient:
    """The browser of a person who may only look."""
    monitor.add("vera", Right.VIEWER)
    return monitor.enter("vera")
