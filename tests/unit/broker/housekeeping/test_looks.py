"""A look that is taken now and then outlives a database that is away."""

import asyncio

import pytest

from xbus.broker.housekeeping.looks import look_regularly
from xbus.errors import JournalUnavailable


async def test_a_database_that_is_away_only_delays_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    looks: list[int] = []
    enough = asyncio.Event()

    async def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise JournalUnavailable("the database is away", "see that it runs")
        enough.set()

    task = asyncio.create_task(look_regularly(look, 0.001, "stalled deliveries"))
    await enough.wait()
    task.cancel()
    assert "stalled deliveries not looked at: the database is away" in caplog.text
