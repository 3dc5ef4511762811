"""The journal over each of its databases: an SQLite file, SQLite in memory, PostgreSQL."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.attempts import begin, event_of
from tests.support.deadline import set_deadlines
from tests.support.journal import Scribe, add_small_bus, looking, memory_engine
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal

DEADLINE_SECONDS = 120.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    set_deadlines((item for item in items if here in item.path.parents), DEADLINE_SECONDS)


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def engine(request: pytest.FixtureRequest) -> sa.Engine:
    """Of a database with the small bus in it; whoever opens a journal on it disposes of it."""
    if request.param == "memory":
        return memory_engine()
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    with looking(url) as connection:
        add_small_bus(connection)
    return create_engine(url)


@pytest.fixture
async def journal(engine: sa.Engine) -> AsyncIterator[Journal]:
    async with Journal(engine, "broker") as journal:
        yield journal


@pytest.fixture
async def scribe(journal: Journal) -> Scribe:
    return await Scribe.of(journal)


@pytest.fixture
def store_url(postgres_url: str) -> str:
    """A PostgreSQL database with the small bus in it, for what only that can do."""
    with looking(postgres_url) as connection:
        add_small_bus(connection)
    return postgres_url


@pytest.fixture
def shared_url(database_url: str) -> str:
    """A database with the small bus in it that other processes may use too; the test runs once for each kind."""
    with looking(database_url) as connection:
        add_small_bus(connection)
    return database_url


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
