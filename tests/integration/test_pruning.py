"""Much that is settled is removed while others write."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks import bus
from benchmarks.backlog import add_backlog
from xbus import model
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.journal.database.connection import writing
from xbus.broker.journal.database.engine import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.rules import PAGE_ENVELOPES
from xbus.broker.journal.writes import ProgressUpdate
from xbus.clock import SystemClock

ENVELOPES = 10_000


class Tomorrow(SystemClock):
    """The machine's clock, with tomorrow's date."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=1)


def count_envelopes(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(model.envelope)).scalar_one())


async def test_acknowledgements_go_on_while_much_is_removed(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many there are in a second tells of the machine. What is removed goes in small steps, and beside them others
    have at least as much time, in which they write."""
    bus.set_up(sqlite_url)
    add_backlog(sqlite_url, ENVELOPES, 1)
    with writing(sqlite_url) as connection:
        connection.execute(sa.update(model.cursor).values(position=ENVELOPES, handed_to=ENVELOPES))
    acknowledged = 0
    steps, in_steps = 0, 0.0
    async with Journal(create_engine(sqlite_url), "broker") as journal:
        run = journal.run

        async def step(errand: Callable[..., Any], *args: Any) -> Any:
            nonlocal steps, in_steps
            began = time.monotonic()
            done = await run(errand, *args)
            steps += 1
            in_steps += time.monotonic() - began
            return done

        monkeypatch.setattr(journal, "run", step)
        began = time.monotonic()
        pruning = asyncio.create_task(Pruner(journal, Tomorrow(), keep_days=0.5, max_bytes=0).prune_old())
        while not pruning.done():
            await journal.write(ProgressUpdate(SystemClock().now()))
            acknowledged += 1
        took = time.monotonic() - began
        await pruning
        assert await journal.read(count_envelopes) == 0
    assert steps > ENVELOPES // PAGE_ENVELOPES
    assert acknowledged >= steps - 1, "there is always a write between two steps, as one is always in the line"
    assert took >= 2 * in_steps
