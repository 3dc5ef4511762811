"""Commands on Spark that can't be carried out: what they say, instead of a stack of Java's."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from spark_worker.items.formats import parsed_schema
from spark_worker.trueup.against import data_set
from tests.support.daemon import write_config
from tests.support.processes import run, script
from tests.support.spark import SECONDS
from xbus.errors import ConfigurationError, XbusError

"""Many times as long as Spark takes to start."""

Program: TypeAlias = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def worker(sqlite_url: str, tmp_path: Path) -> Program:
    """Runs a worker to its end, on a bus that nobody needs to reach for this."""
    config = write_config(tmp_path / "config.ini", sqlite_url)
    (tmp_path / "query.sql").write_text("SELECT * FROM items")
    usual = (
        *("-c", config, "--login", "spark_1", "--back", "tcp://127.0.0.1:1"),
        *("--sql", tmp_path / "query.sql", "--schema", "id INT"),
    )

    def start(*more: str) -> "CompletedProcess[str]":
        return run(script("xbus-spark-worker"), *usual, *more, env={"XBUS_PASSWORD": "secret"}, timeout=SECONDS)

    return start


def test_a_setting_with_which_java_does_not_start_ends_the_worker(worker: Program) -> None:
    ended = worker("--master", "local[2]", "--conf", "spark.driver.memory=lots")

    assert ended.returncode == 3
    (told,) = [line for line in ended.stderr.splitlines() if line.startswith("xbus-spark-worker: ")]
    assert told.startswith("xbus-spark-worker: Spark does not start at local[2] (")
    assert told.endswith("correct --master or --conf [cluster_unreachable]")


def test_a_setting_that_spark_refuses_ends_the_worker_with_the_words_of_spark(worker: Program) -> None:
    ended = worker("--master", "local[2]", "--conf", "spark.scheduler.mode=unfair")

    assert ended.returncode == 3
    (told,) = [line for line in ended.stderr.splitlines() if line.startswith("xbus-spark-worker: ")]
    assert "[INVALID_CONF_VALUE" in told
    assert "unfair" in told
    assert "Traceback" not in ended.stderr


def test_sql_that_is_none_ends_the_worker_before_an_event_meets_it(worker: Program, tmp_path: Path) -> None:
    (tmp_path / "wrong.sql").write_text("CREATE TEMPORARY VIEW one AS SELECT 1;\nSELEC id FROM items")

    ended = worker("--master", "local[2]", "--sql", str(tmp_path / "wrong.sql"))

    assert ended.returncode == 1
    (told,) = [line for line in ended.stderr.splitlines() if line.startswith("xbus-spark-worker: ")]
    assert "statement 2 of --sql is no SQL ([PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'" in told


@pytest.mark.parametrize("schema", ["id INTT", "id INT,, name STRING", "id"])
def test_a_schema_that_is_none_is_told_with_what_spark_says_of_it(spark: SparkSession, schema: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        parsed_schema(schema)
    assert "not a list of columns in DDL ([" in str(told.value)


@pytest.mark.parametrize(
    ("address", "code"),
    [("sqlite:////proc/none.db", "no_database"), ("postgresql://reader@127.0.0.1:1/shop", "journal_unavailable")],
)
def test_a_database_to_compare_with_is_not_taken_for_that_of_the_bus(
    spark: SparkSession, address: str, code: str
) -> None:
    with pytest.raises(XbusError) as told, data_set(spark, address, "orders", ""):
        pass
    assert (told.value.code, told.value.next_step) == (code, "see that --against and --table are right")
