"""What health tells of a database that is away."""

import asyncio
import logging
from typing import cast

import pytest

from tests.support.clock import StandingClock
from xbus.broker.housekeeping import outages
from xbus.broker.journal.commit.writer import silent
from xbus.broker.journal.journal import Journal
from xbus.errors import JournalUnavailable
from xbus.supervision.health import Health


class Ailing:
    """A journal in trouble."""

    def __init__(self) -> None:
        self.outage: JournalUnavailable | None = None
        self.overdue: JournalUnavailable | None = None


async def test_where_the_database_is_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    journal, health = Ailing(), Health("broker", StandingClock())
    telling = asyncio.create_task(outages.tell_outages(cast(Journal, journal), health, look_seconds=0))

    async def told() -> list[str]:
        for _ in range(5):
            await asyncio.sleep(0)
        return [problem.cause for problem in health.problems]

    journal.outage = JournalUnavailable('no password for user "xbus" at 10.1.2.3')
    assert await told() == ["the database can't be written now"]
    assert sum("10.1.2.3" in record.getMessage() for record in caplog.records) == 1
    journal.outage = journal.overdue = silent(7)
    assert await told() == ["the database has said nothing for 7 s"]
    journal.outage = journal.overdue = None
    assert await told() == []
    telling.cancel()
