"""What a person may see of Spark's work, in plans, pages and errors, holds no password."""

import asyncio
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_worker.data_source import XbusDataSource
from spark_worker.items.pieces import OutputLimits
from spark_worker.items.source import Early
from spark_worker.journal.reading import read_ranges
from spark_worker.journal.writing import write_parts
from tests.conftest import StartDaemon, StartProcess
from tests.support.operating import run_xbus
from tests.support.processes import module
from tests.support.spark import SECONDS
from tests.support.spark_log import SparkLog
from xbus.broker.journal.log.planning import SegmentRange
from xbus.emitter import Emitter

SECRET = "hunter2"
URL = f"postgresql+psycopg2://xbus:{SECRET}@127.0.0.1:1/xbus"


def plans(spark: SparkSession) -> str:
    """The plans of all that was carried out, as Spark's pages show them."""
    # Spark's listeners write them down some time after.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(1000 * SECONDS))
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = [executions.apply(number) for number in range(executions.size())]
    return "\n".join(each.details() + each.physicalPlanDescription() for each in shown)


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("id AS _index", "CAST('x' AS BINARY) AS data")


def test_the_address_of_the_journal_is_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    items = read_ranges(spark, URL, [SegmentRange(uuid.uuid4(), False, 0, 0, 1)], Early(StructType([])))
    assert SECRET not in items._jdf.queryExecution().toString()
    with pytest.raises(Exception, match="JournalUnavailable") as read:
        items.collect()
    with pytest.raises(Exception, match="JournalUnavailable") as written:
        write_parts(rows(spark), URL, uuid.uuid4(), OutputLimits(1000, 3), tmp_path)
    assert SECRET not in f"{read.value} {written.value} {plans(spark)}"
    assert "xbus_parts" in plans(spark)


def test_the_password_of_an_emitter_is_not_shown(spark: SparkSession) -> None:
    spark.dataSource.register(XbusDataSource)
    options = {"front": "tcp://127.0.0.1:1", "login": "emitter_1", "password": SECRET, "eventType": "notes"}
    sink = rows(spark).write.format("xbus").mode("append").options(**options, retrySeconds="0.1")
    with pytest.raises(Exception, match=r"xbus\.errors") as failed:
        sink.save()
    assert SECRET not in f"{failed.value} {plans(spark)}"


SINK_SECRET = "sink-secret-9be2a4"


async def test_nothing_that_a_run_of_spark_leaves_has_a_password(
    postgres_url: str, start_daemon: StartDaemon, start_process: StartProcess, tmp_path: Path
) -> None:
    """Plans, the event log, Spark's pages, checkpoints, logs and errors."""
    SparkLog.prepare(postgres_url)
    secret = sa.make_url(postgres_url).password
    assert secret
    daemon = start_daemon(postgres_url)
    changed = await run_xbus(daemon, "password", "emitter", "emitter_1", stdin=f"{SINK_SECRET}\n{SINK_SECRET}\n")
    assert changed.returncode == 0, changed.stderr
    with Emitter(daemon.front, "emitter_1", SINK_SECRET) as emitter:
        emitter.put("orders", [b"x", b"y"])
    folder = tmp_path / "left"
    run = start_process(
        *module("tests.support.spark_secrets"),
        *(daemon.config, daemon.front, folder),
        cwd=Path(__file__).parents[2],
        env={"SINK_PASSWORD": SINK_SECRET},
    )
    assert await asyncio.to_thread(run.wait, SECONDS) == 0, run.text
    left = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    left["output"] = run.text.encode()
    shown = b"".join(left.values())
    assert [word for word in (b"xbus", b"login_refused", b"StreamingQuery") if word not in shown] == []
    assert any("events" in name for name in left)
    secrets = (secret.encode(), SINK_SECRET.encode())
    assert [name for name, data in left.items() if any(each in data for each in secrets)] == []
