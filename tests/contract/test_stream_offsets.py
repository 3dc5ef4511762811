"""How far a stream of Spark has come, in a log that grows, loses what is old, or is another one; on every database."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_worker.source.journal import REMOVED
from spark_worker.source.options import StreamOptions
from spark_worker.source.places import LogEnd, Place
from spark_worker.source.stream import LogStreamReader, Offset, offset
from tests.support.journal import NOW, Scribe
from xbus import model
from xbus.broker.journal.journal import Journal
from xbus.errors import ConfigurationError, JournalError

ALL = ReadAllAvailable()
SCHEMA = pa.schema([("data", pa.binary())])


@pytest.fixture
async def log(shared_journal: Journal, shared_scribe: Scribe, shared_url: str) -> "Log":
    return Log(shared_journal, shared_scribe, shared_url)


class Log:
    """A journal that a query reads notes of."""

    def __init__(self, journal: Journal, scribe: Scribe, url: str) -> None:
        self.url = url
        self._journal = journal
        self._scribe = scribe

    async def put(self, type_name: str = "notes") -> int:
        return (await self._scribe.put([b"x"], type_name=type_name)).position

    async def remove(self, *positions: int) -> None:
        statement = sa.update(model.envelope).where(model.envelope.c.position.in_(positions)).values(pruned_at=NOW)
        await self._journal.run(lambda connection: connection.execute(statement))

    def reader(self, start: Place = LogEnd.EARLIEST, fail_on_data_loss: bool = True) -> LogStreamReader:
        columns = ("data",)
        options = StreamOptions(self.url, "notes", columns, 0, 1.0, fail_on_data_loss, start, 0)
        return LogStreamReader(options, SCHEMA)

    def run(self, start: Offset) -> Offset:
        """A query with trigger availableNow, that goes on at an offset."""
        reader = self.reader()
        reader.prepareForTriggerAvailableNow()
        while (end := reader.latestOffset(start, ALL)) != start:
            reader.partitions(start, end)
            start = end
        return start


async def test_each_run_passes_envelopes_of_other_types(log: Log) -> None:
    await log.put()
    reached = log.run(offset(0, 0))
    await log.put("flights")
    reached = log.run(reached)
    assert reached == offset(2, 0)
    await log.remove(1, 2)
    await log.put()
    assert log.run(reached) == offset(3, 0)


async def test_a_log_that_ends_before_what_was_read_is_told(log: Log) -> None:
    await log.put()
    await log.put()
    with pytest.raises(JournalError, match="read up to position 5, and the log ends at 2") as caught:
        log.reader().latestOffset(offset(5, 1), ALL)
    assert caught.value.code == REMOVED
    with pytest.raises(JournalError, match="read up to position 3"):
        log.reader().latestOffset(offset(1, 3), ALL)
    with pytest.raises(JournalError, match="read up to position 5"):
        log.run(offset(5, 1))
    assert log.reader(fail_on_data_loss=False).latestOffset(offset(5, 1), ALL) == offset(5, 1)


async def test_a_query_may_begin_behind_the_end(log: Log) -> None:
    await log.put()
    reader = log.reader(start=4)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    for _ in range(3):
        await log.put()
    assert reader.latestOffset(start, ALL) == offset(4, 1)


def test_a_query_does_not_begin_at_a_moment_to_come(log: Log) -> None:
    with pytest.raises(ConfigurationError, match="is in the future"):
        log.reader(start=datetime.now(UTC) + timedelta(days=1)).initialOffset()
    assert log.reader(start=datetime(2020, 1, 1, tzinfo=UTC)).initialOffset() == offset(0, 0)
