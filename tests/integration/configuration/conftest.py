"""A database with the schema and nothing in it."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from xbus.broker.journal.database.engine import create_engine


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """In a transaction that is never committed."""
    with engine.connect() as connection, connection.begin():
        yield connection
