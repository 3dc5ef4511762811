"""The log as a table of Spark."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import StartDaemon
from tests.support.daemon import write_config
from tests.support.spark_log import SparkLog, items_of, numbered


@pytest.fixture
def log(sqlite_url: str, start_daemon: StartDaemon, spark: SparkSession) -> SparkLog:
    SparkLog.prepare(sqlite_url)
    return SparkLog(start_daemon(sqlite_url), spark)


def test_every_item_comes_with_its_origin(database_url: str, start_daemon: StartDaemon, spark: SparkSession) -> None:
    SparkLog.prepare(database_url)
    log = SparkLog(start_daemon(database_url), spark)
    began = datetime.now(UTC) - timedelta(seconds=1)
    first = log.emit([b"a", b"b"], [b"c"])
    log.emit([b"other"], type_name="notes")
    third = log.emit([b"d", b""])
    rows = log.read().orderBy("position", "data").collect()
    assert [(row.position, row["index"], bytes(row.data)) for row in rows] == [
        *((1, 0, b"a"), (1, 1, b"b"), (1, 0, b"c")),
        *((3, 1, b""), (3, 0, b"d")),
    ]
    assert {row.envelope_id for row in rows} == {first.envelope_id, third.envelope_id}
    assert len({row.event_id for row in rows}) == 3
    assert {row.emitter for row in rows} == {"emitter_1"}
    assert all(began <= row.sealed_at.replace(tzinfo=UTC) <= datetime.now(UTC) for row in rows)


def test_a_large_event_is_read_side_by_side(database_url: str, start_daemon: StartDaemon, spark: SparkSession) -> None:
    SparkLog.prepare(database_url)
    log = SparkLog(start_daemon(database_url), spark)
    items = numbered(range(50_000))
    log.emit(items[:10])
    log.emit(items[10:49_990])
    log.emit(items[49_990:])
    frame = log.read(partitions=4)
    assert frame.rdd.getNumPartitions() > 1
    assert items_of(frame) == items


def test_a_read_begins_and_ends_where_it_is_told(log: SparkLog) -> None:
    for number in range(1, 6):
        log.emit([b"%d" % number])
    assert items_of(log.read(**{"from": 2})) == [b"2", b"3", b"4", b"5"]
    assert items_of(log.read(to=2)) == [b"1", b"2"]
    assert items_of(log.read(**{"from": 3}, to=3)) == [b"3"]
    assert items_of(log.read(**{"from": "latest"})) == []
    assert items_of(log.read(**{"from": 4}, to=99)) == [b"4", b"5"]
    assert items_of(log.read(**{"from": 5}, to=2)) == []


def test_a_read_begins_and_ends_at_moments(log: SparkLog) -> None:
    for number in range(1, 4):
        log.emit([b"%d" % number])
    second = log.read().where("position = 2").first()
    assert second is not None
    moment = second.sealed_at.isoformat()
    assert items_of(log.read(**{"from": moment})) == [b"2", b"3"]
    assert items_of(log.read(to=moment)) == [b"1"]
    assert items_of(log.read(**{"from": "2020-01-01"}, to="2020-01-02T00:00:00Z")) == []


def test_columns_that_nobody_wants_are_left_out(log: SparkLog) -> None:
    log.emit([b"a", b"b"])
    frame = log.read(columns="index, data")
    assert frame.columns == ["index", "data"]
    assert sorted((row["index"], bytes(row.data)) for row in frame.collect()) == [(0, b"a"), (1, b"b")]
    assert [row.asDict() for row in log.read(columns="position").collect()] == [{"position": 1}] * 2
    reader = log.spark.read.format("xbus").option("config", str(log.daemon.config)).option("eventType", "orders")
    assert reader.schema("data binary").load().columns == ["data"]


def test_a_replay_is_read_as_an_envelope_of_its_own(log: SparkLog) -> None:
    log.replay(log.emit([b"a"], numbered(range(2_000))))
    frame = log.read()
    assert items_of(frame.where("position = 2")) != []
    assert sorted(items_of(frame.where("position = 1"))) == sorted(items_of(frame.where("position = 2")))


def test_sql_reads_it_too(log: SparkLog) -> None:
    log.emit([b"a", b"b"])
    log.spark.sql(
        f"CREATE TEMPORARY VIEW orders_of_the_bus USING xbus OPTIONS (config '{log.daemon.config}', eventType 'orders')"
    )
    try:
        found = log.spark.sql("SELECT string(data) AS text FROM orders_of_the_bus ORDER BY index").collect()
    finally:
        log.spark.catalog.dropTempView("orders_of_the_bus")
    assert [row.text for row in found] == ["a", "b"]


def test_an_empty_log_has_no_rows(log: SparkLog) -> None:
    assert log.read().collect() == []


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda log: log.read("nix"), "there is no event type 'nix'"),
        (lambda log: log.read(form=1), "there is no option form"),
        (lambda log: log.read(**{"from": "soon"}), "option from: 'soon' is neither a position"),
        (lambda log: log.read(columns="data, dat"), "names 'dat'"),
        (lambda log: log.spark.read.format("xbus").option("eventType", "orders").load(), "no configuration file"),
    ],
    ids=["type", "option", "place", "column", "config"],
)
def test_what_was_asked_for_wrongly_is_told(
    log: SparkLog, change: Callable[[SparkLog], DataFrame], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XBUS_CONFIG", raising=False)
    with pytest.raises(Exception, match=re.escape(cause)):
        change(log).collect()


def test_a_day_that_is_written_as_a_number_is_no_position(log: SparkLog) -> None:
    log.emit([b"a"])
    for place in ("from", "to"):
        with pytest.raises(Exception, match="the log ends at 1: write 2020-01-01 for the day"):
            log.read(**{place: "20200101"}).collect()
    assert items_of(log.read(**{"from": "2020-01-01"})) == [b"a"]


def test_a_database_that_is_not_there_is_told_and_not_made(spark: SparkSession, tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.ini", f"sqlite:///{tmp_path}/wrong.db")
    reader = spark.read.format("xbus").option("config", str(config)).option("eventType", "orders")

    with pytest.raises(Exception, match=r"there is no database .*wrong.db: correct sqlalchemy.dburi"):
        reader.load().collect()

    assert not (tmp_path / "wrong.db").exists()


def test_what_was_removed_is_left_out_or_told(log: SparkLog) -> None:
    for number in range(1, 4):
        log.emit([b"%d" % number])
    log.remove(2)
    assert items_of(log.read()) == [b"1", b"3"]
    with pytest.raises(Exception, match="1 were removed before they were read"):
        log.read(failOnDataLoss=True).collect()
    assert items_of(log.read(**{"from": 3}, failOnDataLoss=True)) == [b"3"]


def test_what_was_archived_is_read_with_the_rest(
    database_url: str, start_daemon: StartDaemon, spark: SparkSession, tmp_path: Path
) -> None:
    SparkLog.prepare(database_url)
    log = SparkLog(start_daemon(database_url), spark)
    items = numbered(range(4_000))
    for first in range(0, 4_000, 1_000):
        log.emit(items[first : first + 1_000])
    log.archive(tmp_path / "archive", until=3)
    assert items_of(log.read(failOnDataLoss=True)) == items
    assert items_of(log.read(**{"from": 2}, to=3)) == items[1_000:3_000]
    assert [row.asDict() for row in log.read(columns="index", to=1).agg({"index": "max"}).collect()] == [
        {"max(index)": 999}
    ]
