import asyncio
import logging
from typing import Any, cast

import pytest

from tests.support.waiting import DEADLINE_SECONDS
from xbus.broker.housekeeping.outputs import OutputCleaner
from xbus.broker.journal.bulk.cleaning import StrayFiles
from xbus.broker.journal.journal import Journal
from xbus.clock import SystemClock
from xbus.errors import JournalError, JournalUnavailable


class Ailing:
    """A journal that is out of reach, then faulty, then has something to remove in two steps."""

    def __init__(self) -> None:
        self.answers: list[Any] = [JournalUnavailable("away"), JournalError("broken"), True, False]
        self.cleaned = asyncio.Event()

    async def run(self, *_: Any) -> bool:
        answer = self.answers.pop(0) if self.answers else False
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    async def read(self, *_: Any) -> StrayFiles:
        self.cleaned.set()
        return StrayFiles(None, ())


async def test_cleaning_outlives_a_database_that_does_not(caplog: pytest.LogCaptureFixture) -> None:
    journal = Ailing()
    with caplog.at_level(logging.WARNING):
        cleaner = OutputCleaner(cast(Journal, journal), SystemClock(), look_seconds=0)
        watching = asyncio.create_task(cleaner.watch())
        async with asyncio.timeout(DEADLINE_SECONDS):
            await journal.cleaned.wait()
    watching.cancel()
    assert [getattr(record, "action", "") for record in caplog.records] == ["cleaning_delayed", "cleaning_failed"]
    assert journal.answers == []
