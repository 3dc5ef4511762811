"""A database of xbus.broker 0.2.0."""

from collections.abc import Iterator

import pytest

from tests.support import legacy, postgres


@pytest.fixture
def old(postgres_server: postgres.Server) -> Iterator[legacy.OldDatabase]:
    """The tables of 0.2.0 without rows."""
    with legacy.old_database(postgres_server) as database:
        yield database
