"""The removal as the back carries it out: what goes when, and what is counted afterwards; on every database."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.housekeeping.pruning import Pruner
from xbus.broker.journal.journal import Journal
from xbus.broker.journal.retention.pruning import read_stored_bytes
from xbus.broker.journal.writes import Cancel
from xbus.clock import SystemClock

CANCELLED = b"c" * 700
SEALED = b"s" * 200


class Later(SystemClock):
    """So long after what the tests write."""

    def __init__(self, after: timedelta) -> None:
        self._after = after

    def now(self) -> datetime:
        return NOW + self._after


async def cancel_one(journal: Journal, scribe: Scribe) -> None:
    envelope_id, _ = scribe.start_envelope()
    event_id, _ = scribe.start_event(envelope_id)
    await scribe.append(envelope_id, event_id, 0, [CANCELLED])
    await journal.write(Cancel(envelope_id, NOW, "changed its mind"))


async def counted(journal: Journal) -> tuple[int, int]:
    """What the journal says that it holds, and what it does hold."""
    size = sa.select(sa.func.coalesce(sa.func.sum(sa.func.length(model.log_segment.c.data)), 0))
    held = await journal.read(lambda connection: int(connection.execute(size).scalar_one()))
    return await journal.read(read_stored_bytes), held


async def test_what_was_cancelled_fills_no_journal(journal: Journal, scribe: Scribe) -> None:
    await cancel_one(journal, scribe)
    receipt = await scribe.put([SEALED])
    pruner = Pruner(journal, Later(timedelta(seconds=61)), keep_days=30, max_bytes=900)
    await pruner.prune_for_space()
    assert await counted(journal) == (receipt.data_bytes, receipt.data_bytes)


async def test_what_was_just_cancelled_can_still_be_told_so(journal: Journal, scribe: Scribe) -> None:
    await cancel_one(journal, scribe)
    before = await counted(journal)
    await Pruner(journal, Later(timedelta(seconds=59)), keep_days=30, max_bytes=10).prune_for_space()
    assert await counted(journal) == before
