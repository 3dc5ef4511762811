"""Much that is settled is removed while others write."""

import asyncio
import time
from datetime import datetime, timedelta

import sqlalchemy as sa

from benchmarks import bus
from benchmarks.backlog import add_backlog
from xbus import model
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.journal.connection import writing
from xbus.broker.journal.database import create_engine
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.writes import Progress
from xbus.clock import SystemClock

ENVELOPES = 100_000
SAMPLE_SECONDS = 1.0


class Tomorrow(SystemClock):
    """The machine's clock, with tomorrow's date."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=1)


def count_envelopes(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(model.envelope)).scalar_one())


async def commits(journal: Journal) -> int:
    """How many writes are acknowledged one after the other in some time."""
    count, until = 0, time.monotonic() + SAMPLE_SECONDS
    while time.monotonic() < until:
        await journal.write(Progress(SystemClock().now()))
        count += 1
    return count


async def test_acknowledgements_go_on_while_much_is_removed(sqlite_url: str) -> None:
    bus.set_up(sqlite_url)
    add_backlog(sqlite_url, ENVELOPES, 1)
    with writing(sqlite_url) as connection:
        connection.execute(sa.update(model.cursor).values(position=ENVELOPES, handed_to=ENVELOPES))
    async with Journal(create_engine(sqlite_url), "broker") as journal:
        pruner = Pruner(journal, Tomorrow(), keep_days=0.5, max_bytes=0)
        alone = await commits(journal)
        pruning = asyncio.create_task(pruner.prune_old())
        beside = await commits(journal)
        assert not pruning.done()
        pruning.cancel()
        left = await journal.read(count_envelopes)
    assert left < ENVELOPES
    assert beside > alone / 6
