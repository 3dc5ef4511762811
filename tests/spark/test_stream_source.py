"""The log as a stream of Spark."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.conftest import StartDaemon
from tests.support.spark import SECONDS
from tests.support.spark_log import SparkLog, numbered
from tests.support.waiting import wait_until


@pytest.fixture
def log(sqlite_url: str, start_daemon: StartDaemon, spark: SparkSession) -> SparkLog:
    SparkLog.prepare(sqlite_url)
    return SparkLog(start_daemon(sqlite_url), spark)


class Collected:
    """What a query gave, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.orderBy("position", "index").select("data").collect()
        self.batches[batch] = [bytes(row.data) for row in rows]

    @property
    def items(self) -> list[bytes]:
        return [item for batch in sorted(self.batches) for item in self.batches[batch]]

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[batch]) for batch in sorted(self.batches)]


def run_to_the_end(frame: DataFrame, checkpoint: Path) -> Collected:
    """Run a query until it has read what is there now."""
    collected = Collected()
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.foreachBatch(collected.take).start()
    query.awaitTermination()
    return collected


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[StreamingQuery]]:
    """Queries to be stopped when the test is over."""
    queries: list[StreamingQuery] = []
    yield queries
    for query in queries:
        query.stop()


def test_a_query_reads_what_is_there_and_goes_on_where_it_was(log: SparkLog, tmp_path: Path) -> None:
    log.emit([b"a", b"b"])
    log.emit([b"other"], type_name="notes")
    assert run_to_the_end(log.read_stream(), tmp_path / "checkpoint").items == [b"a", b"b"]
    log.emit([b"c"])
    log.emit([b"d"])
    log.daemon.restart()
    assert run_to_the_end(log.read_stream(), tmp_path / "checkpoint").items == [b"c", b"d"]
    assert run_to_the_end(log.read_stream(), tmp_path / "checkpoint").items == []


def test_a_micro_batch_holds_whole_envelopes(log: SparkLog, tmp_path: Path) -> None:
    items = numbered(range(35))
    for first, end in [(0, 4), (4, 8), (8, 12), (12, 32), (32, 35)]:
        log.emit(items[first:end])
    collected = run_to_the_end(log.read_stream(maxItemsPerTrigger=9), tmp_path / "checkpoint")
    assert collected.items == items
    assert collected.sizes == [8, 4, 20, 3]


def test_a_query_begins_where_it_is_told(log: SparkLog, tmp_path: Path) -> None:
    for number in range(1, 4):
        log.emit([b"%d" % number])
    second = log.read().where("position = 2").first()
    assert second is not None
    places = {
        "2": [b"2", b"3"],
        "earliest": [b"1", b"2", b"3"],
        "latest": [],
        second.sealed_at.isoformat(): [b"2", b"3"],
    }
    for number, (place, items) in enumerate(places.items()):
        frame = log.read_stream(startingPosition=place)
        assert run_to_the_end(frame, tmp_path / f"checkpoint-{number}").items == items, place


def test_what_is_sealed_meanwhile_comes_soon(log: SparkLog, tmp_path: Path, running: list[StreamingQuery]) -> None:
    collected = Collected()
    writer = log.read_stream(startingPosition="latest").writeStream.option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(processingTime="100 milliseconds").foreachBatch(collected.take).start()
    running.append(query)
    wait_until(lambda: query.lastProgress is not None, "the query runs", SECONDS)

    def has_more_than(items: int) -> bool:
        return len(collected.items) > items

    for number in range(3):
        log.emit([b"%d" % number])
        wait_until(partial(has_more_than, number), "the item has come", SECONDS)
    assert collected.items == [b"0", b"1", b"2"]


def test_what_was_removed_before_it_was_read_ends_the_query(log: SparkLog, tmp_path: Path) -> None:
    log.emit([b"1"])
    log.remove(1)
    log.emit([b"2"])
    # What had been removed before the query was there is no loss.
    assert run_to_the_end(log.read_stream(), tmp_path / "checkpoint").items == [b"2"]
    log.emit([b"3"])
    log.remove(3)
    log.emit([b"4"])
    with pytest.raises(Exception, match="1 were removed before they were read"):
        run_to_the_end(log.read_stream(), tmp_path / "checkpoint")
    frame = log.read_stream(failOnDataLoss=False)
    assert run_to_the_end(frame, tmp_path / "checkpoint").items == [b"4"]


def test_a_wrong_option_ends_the_query(log: SparkLog, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="'0' is not a whole number from 1 on"):
        run_to_the_end(log.read_stream(maxItemsPerTrigger=0), tmp_path / "checkpoint")


def test_a_query_begins_in_the_archive(log: SparkLog, tmp_path: Path) -> None:
    for number in range(1, 5):
        log.emit([b"%d" % number])
    log.archive(tmp_path / "archive", until=2)
    collected = run_to_the_end(log.read_stream(maxItemsPerTrigger=2), tmp_path / "checkpoint")
    assert collected.items == [b"1", b"2", b"3", b"4"]
    assert collected.sizes == [2, 2]
