"""A whole back over a journal in memory: what its tests start from."""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from tests.support.journal import memory_engine
from xbus.broker.journal.journal import Journal


@pytest.fixture
def engine() -> sa.Engine:
    """Of a database in memory with the small bus in it."""
    return memory_engine()


@pytest.fixture
async def journal(engine: sa.Engine) -> AsyncIterator[Journal]:
    async with Journal(engine, "broker") as journal:
        yield journal
