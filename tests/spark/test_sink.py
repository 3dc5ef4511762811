"""Envelopes sent from Spark."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.conftest import StartDaemon
from tests.support.spark import SECONDS
from tests.support.spark_log import SparkLog, forget_last_batch, items_of, numbered
from tests.support.waiting import wait_until


@pytest.fixture
def log(sqlite_url: str, start_daemon: StartDaemon, spark: SparkSession) -> SparkLog:
    SparkLog.prepare(sqlite_url)
    return SparkLog(start_daemon(sqlite_url), spark)


def positions(log: SparkLog) -> list[int]:
    """Where what was sent lies."""
    return sorted({row.position for row in log.read("notes").collect()})


@pytest.mark.parametrize("inline", [1, 1_000_000], ids=["in files", "in messages"])
def test_a_table_becomes_one_envelope_in_the_order_of_its_partitions(
    log: SparkLog, tmp_path: Path, inline: int
) -> None:
    frame = log.spark.range(0, 5_000, numPartitions=3).selectExpr("string(id) AS data", "id AS other")
    options = log.sink(inlineBytes=inline, stagingDir=tmp_path / "staging")
    frame.write.format("xbus").mode("append").options(**options).save()
    assert items_of(log.read("notes")) == numbered(range(5_000))
    assert positions(log) == [1]
    assert not list((tmp_path / "staging").glob("**/*.items"))


def test_a_table_without_rows_sends_nothing(log: SparkLog) -> None:
    frame = log.spark.range(0).selectExpr("binary(string(id)) AS data")
    frame.write.format("xbus").mode("append").options(**log.sink()).save()
    assert positions(log) == []


def test_a_table_is_sent_once_under_a_key(log: SparkLog) -> None:
    def write(end: int) -> None:
        frame = log.spark.range(0, end, numPartitions=2).selectExpr("string(id) AS data")
        frame.write.format("xbus").mode("append").options(**log.sink(key="day 1")).save()

    write(10)
    write(10)
    assert items_of(log.read("notes")) == numbered(range(10))
    with pytest.raises(Exception, match="stands for an envelope with other content"):
        write(11)
    assert positions(log) == [1]


@pytest.mark.parametrize(
    ("expression", "mode", "cause"),
    [
        ("id AS data", "append", "no column data of type binary or string"),
        ("string(id) AS text", "append", "no column data of type binary or string"),
        ("string(id) AS data", "overwrite", "can't be overwritten"),
    ],
)
def test_what_can_not_be_sent_is_told_and_leaves_nothing(
    log: SparkLog, tmp_path: Path, expression: str, mode: str, cause: str
) -> None:
    frame = log.spark.range(0, 10, numPartitions=2).selectExpr(expression)
    options = log.sink(inlineBytes=1, stagingDir=tmp_path / "staging")
    with pytest.raises(Exception, match=re.escape(cause)):
        frame.write.format("xbus").mode(mode).options(**options).save()
    assert positions(log) == []
    assert not list((tmp_path / "staging").glob("**/*.items"))


def test_what_other_tasks_staged_goes_with_the_one_that_fails(log: SparkLog, tmp_path: Path) -> None:
    staging = tmp_path / "staging"

    def last(number: int) -> str | None:
        """Nothing for the last row, as soon as the other task has a file."""
        if number < 9:
            return str(number)
        wait_until(lambda: list(staging.glob("**/*.items")), "the other task has staged", SECONDS)
        return None

    frame = log.spark.range(0, 10, numPartitions=2).select(sf.udf(last, "string", useArrow=False)("id").alias("data"))
    options = log.sink(inlineBytes=1, stagingDir=staging)
    with pytest.raises(Exception, match="a row has no data"):
        frame.write.format("xbus").mode("append").options(**options).save()
    assert positions(log) == []
    assert not list(staging.glob("**/*.items"))


def test_a_wrong_password_is_told(log: SparkLog) -> None:
    frame = log.spark.range(1).selectExpr("string(id) AS data")
    with pytest.raises(Exception, match="password"):
        frame.write.format("xbus").mode("append").options(**{**log.sink(), "password": "wrong"}).save()


def pump(log: SparkLog, checkpoint: Path, staging: Path, **options: object) -> None:
    """Carry all orders that are there over to notes, a micro-batch for each envelope."""
    writer = log.read_stream(maxItemsPerTrigger=1, columns="data").writeStream.format("xbus")
    writer = writer.options(**log.sink(stagingDir=staging, **options)).option("checkpointLocation", str(checkpoint))
    writer.queryName(f"pump {checkpoint}").trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("inline", [1, 1_000_000], ids=["in files", "in messages"])
def test_each_micro_batch_becomes_one_envelope(log: SparkLog, tmp_path: Path, inline: int) -> None:
    log.emit([b"a", b"b"])
    log.emit([b"c"])
    pump(log, tmp_path / "checkpoint", tmp_path / "staging", inlineBytes=inline)
    assert items_of(log.read("notes")) == [b"a", b"b", b"c"]
    assert positions(log) == [3, 4]
    assert not list((tmp_path / "staging").glob("*"))


@pytest.mark.parametrize("inline", [1, 1_000_000], ids=["in files", "in messages"])
def test_a_batch_that_is_done_again_is_not_sent_again(log: SparkLog, tmp_path: Path, inline: int) -> None:
    log.emit([b"a", b"b"])
    log.emit([b"c"])
    pump(log, tmp_path / "checkpoint", tmp_path / "staging", inlineBytes=inline)
    # The second time it is one without rows, which passed what the query itself has sent.
    for batch in (1, 2):
        assert forget_last_batch(tmp_path / "checkpoint") == batch
        pump(log, tmp_path / "checkpoint", tmp_path / "staging", inlineBytes=inline)
    assert items_of(log.read("notes")) == [b"a", b"b", b"c"]
    log.emit([b"d"])
    pump(log, tmp_path / "checkpoint", tmp_path / "staging", inlineBytes=inline)
    assert items_of(log.read("notes")) == [b"a", b"b", b"c", b"d"]
    assert positions(log) == [3, 4, 6]


def test_a_batch_that_comes_out_otherwise_the_second_time_is_not_sent_again(log: SparkLog, tmp_path: Path) -> None:
    log.emit([b"a", b"b"])

    def pump_random() -> None:
        frame = log.read_stream(columns="data").selectExpr("concat(string(data), uuid()) AS data")
        writer = frame.writeStream.format("xbus").options(**log.sink(stagingDir=tmp_path / "staging"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    pump_random()
    first = items_of(log.read("notes"))
    forget_last_batch(tmp_path / "checkpoint")
    pump_random()
    assert items_of(log.read("notes")) == first
    assert len(first) == 2


def test_a_query_whose_bus_is_away_fails_and_goes_on_later(log: SparkLog, tmp_path: Path) -> None:
    log.emit([b"a"])
    log.daemon.stop()
    for seconds in (0, 0.5):
        with pytest.raises(Exception, match="no connection"):
            pump(log, tmp_path / "checkpoint", tmp_path / "staging", retrySeconds=seconds)
    log.daemon.start()
    pump(log, tmp_path / "checkpoint", tmp_path / "staging")
    assert items_of(log.read("notes")) == [b"a"]
