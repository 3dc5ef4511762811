"""The journal over each of its databases: an SQLite file, SQLite in memory, PostgreSQL."""

import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support import postgres
from tests.support.attempts import begin, event_of
from tests.support.deadline import set_deadlines
from tests.support.journal import Scribe, add_small_bus, looking, memory_engine
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal

DEADLINE_SECONDS = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    set_deadlines(items, "tests/contract/", DEADLINE_SECONDS)


@pytest.fixture(scope="session")
def small_bus_file(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the small bus in it, to be copied and never opened."""
    path = shutil.copyfile(sqlite_template, tmp_path_factory.mktemp("small_bus") / "xbus.db")
    with looking(f"sqlite:///{path}") as connection:
        add_small_bus(connection)
    return path


@pytest.fixture
def file_url(small_bus_file: Path, tmp_path: Path) -> str:
    """An SQLite file with the small bus in it."""
    return f"sqlite:///{shutil.copyfile(small_bus_file, tmp_path / 'xbus.db')}"


@pytest.fixture
def store_url(postgres_server: postgres.Server) -> Iterator[str]:
    """A PostgreSQL database with the small bus in it, for what only that can do."""
    url = postgres_server.create(add_small_bus)
    yield url
    postgres_server.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """A database with the small bus in it that other processes may use too; the test runs once for each kind."""
    url: str = request.getfixturevalue("file_url" if request.param == "sqlite" else "store_url")
    return url


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def engine(request: pytest.FixtureRequest) -> sa.Engine:
    """Of a database with the small bus in it; whoever opens a journal on it disposes of it."""
    if request.param == "memory":
        return memory_engine()
    return create_engine(request.getfixturevalue("file_url" if request.param == "sqlite" else "store_url"))


@pytest.fixture
async def journal(engine: sa.Engine) -> AsyncIterator[Journal]:
    async with Journal(engine, "broker") as journal:
        yield journal


@pytest.fixture
async def scribe(journal: Journal) -> Scribe:
    return await Scribe.of(journal)


@pytest.fixture
async def shared_journal(shared_url: str) -> AsyncIterator[Journal]:
    async with Journal(create_engine(shared_url), "broker") as journal:
        yield journal


@pytest.fixture
async def shared_scribe(shared_journal: Journal) -> Scribe:
    return await Scribe.of(shared_journal)


@pytest.fixture
async def event_id(shared_journal: Journal, shared_scribe: Scribe) -> uuid.UUID:
    """An event of two items for a bulk worker."""
    return await event_of(shared_journal, await shared_scribe.put([b"x", b"y"], type_name="flights"))


@pytest.fixture
async def attempt_id(shared_journal: Journal, shared_scribe: Scribe, event_id: uuid.UUID) -> uuid.UUID:
    """An attempt at its output that has begun."""
    begun = await begin(shared_journal, shared_scribe, event_id)
    assert begun is not None
    return begun
