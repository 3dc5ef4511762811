"""The example of the documentation."""

from pathlib import Path

from pyspark.sql import SparkSession

from examples.spark_log import forward, largest
from tests.conftest import StartDaemon
from tests.support.bus import PASSWORD, add_bus
from tests.support.processes import module, run
from xbus.emitter import Emitter


def test_the_log_is_read_and_sent_on(
    sqlite_url: str, start_daemon: StartDaemon, spark: SparkSession, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}, "capitals": {"store": []}})
    daemon = start_daemon(sqlite_url)
    config = str(daemon.config)
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        emitter.put("test_event", [b"ada", b"grace"])
    assert [(row.position, row["index"], row.bytes) for row in largest(spark, config).collect()] == [
        (1, 1, 5),
        (1, 0, 3),
    ]
    capitals = spark.read.format("xbus").option("config", config).option("eventType", "capitals").load()
    query = forward(spark, config, str(tmp_path / "checkpoint"))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(bytes(row.data) for row in capitals.collect()) == [b"ADA", b"GRACE"]


def test_the_program_finds_a_java_that_pyspark_does_not_find(
    sqlite_url: str, start_daemon: StartDaemon, tmp_path: Path
) -> None:
    add_bus(sqlite_url, {"test_event": {"store": []}})
    daemon = start_daemon(sqlite_url)
    with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
        emitter.put("test_event", [b"grace"])
    done = run(*module("examples.spark_log"), daemon.config, env={"JAVA_HOME": str(tmp_path / "nowhere")})
    assert done.returncode == 0, done.stderr
    assert "|       1|    0|    5|" in done.stdout
