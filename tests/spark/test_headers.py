"""Headers and partition keys on Spark: columns of the source, options of the sink."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD
from tests.support.spark_log import SparkLog
from xbus.emitter import Emitter

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MERGED = {
    "traceparent": TRACEPARENT,
    "own": "event",
    "shard": "7",
    "urgent": "true",
    "source_time": "2030-01-31T12:00:00Z",
}
WANTED = {b"a": ({}, None), b"b": (MERGED, "client 7"), b"c": (MERGED, "client 7"), b"d": (MERGED, None)}


def send(log: SparkLog) -> None:
    with Emitter(log.daemon.front, "emitter_1", PASSWORD) as emitter:
        emitter.put("orders", [b"a"])
        of_envelope: dict[str, Any] = {"traceparent": TRACEPARENT, "own": "envelope", "shard": 7}
        of_event: dict[str, Any] = {"own": "event", "urgent": True, "source_time": "2030-01-31T13:00:00+01:00"}
        with emitter.envelope(headers=of_envelope) as envelope:
            with envelope.event("orders", headers=of_event, partition_key="client 7") as event:
                event.send(b"b")
                event.send(b"c")
        emitter.put("orders", [b"d"], headers=of_envelope | of_event)


def told(frame: DataFrame) -> dict[bytes, tuple[dict[str, str] | None, str | None]]:
    return {bytes(row.data): (row.headers, row.partition_key) for row in frame.collect()}


def test_columns_of_the_source(
    database_url: str, start_daemon: StartDaemon, spark: SparkSession, tmp_path: Path
) -> None:
    """From the journal, and from an archive; also from its files that were written before there were headers."""
    SparkLog.prepare(database_url)
    log = SparkLog(start_daemon(database_url), spark)
    send(log)
    assert told(log.read()) == WANTED
    assert log.read().where("headers['shard'] = '7'").count() == 3
    assert [row.asDict() for row in log.read(columns="partition_key", to=1).collect()] == [{"partition_key": None}]

    log.archive(tmp_path / "archive", until=3)
    assert told(log.read()) == WANTED

    for file in (tmp_path / "archive").rglob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["headers", "partition_key"]), file)
    assert told(log.read()) == dict.fromkeys(WANTED, ({}, None))


def test_options_of_the_sink(sqlite_url: str, start_daemon: StartDaemon, spark: SparkSession) -> None:
    SparkLog.prepare(sqlite_url)
    log = SparkLog(start_daemon(sqlite_url), spark)
    options = log.sink(headers='{"schema": "notes/3", "shard": 7}', partitionKey="client 7")
    spark.createDataFrame([("a",)], "data string").write.format("xbus").mode("append").options(**options).save()
    assert told(log.read("notes")) == {b"a": ({"schema": "notes/3", "shard": "7"}, "client 7")}


@pytest.mark.parametrize(
    ("option", "cause"),
    [
        ({"headers": "schema=notes"}, "is no object in JSON"),
        ({"headers": '["schema"]'}, "is no object in JSON"),
        ({"headers": '{"traceparent": "1"}'}, "header traceparent is no traceparent"),
        ({"headers": '{"mine": null}'}, "header mine is of the type NoneType"),
        ({"partitionKey": "x" * 256}, "the partition key 'xxx"),
    ],
)
def test_bad_options_of_the_sink(spark: SparkSession, option: dict[str, str], cause: str) -> None:
    given = {"front": "tcp://127.0.0.1:1", "login": "a", "password": "b", "eventType": "notes"} | option
    with pytest.raises(PySparkException, match=cause):
        spark.createDataFrame([("a",)], "data string").write.format("xbus").mode("append").options(**given).save()
