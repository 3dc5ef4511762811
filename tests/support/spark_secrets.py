"""``python -m tests.support.spark_secrets CONFIG FRONT FOLDER`` reads and writes the log, in batches and as streams.

The emitter's password comes by the environment. The program prints the plans, and leaves the event log and Spark's
pages below the folder.
"""

import os
import sys
import urllib.request
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_worker.data_source import XbusDataSource
from tests.support import spark
from tests.support.ports import free_port

PASSWORD_VARIABLE = "SINK_PASSWORD"

PAGES = (
    *("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "StreamingQuery/"),
    *("api/v1/applications", "SQL/execution/?id=0", "SQL/execution/?id=1", "SQL/execution/?id=2"),
)
OF_APPLICATION = ("environment", "jobs", "stages", "sql?details=true&planDescription=true&length=1000")


def main(config: str, front: str, folder: Path) -> None:
    """Do it."""
    (folder / "events").mkdir(parents=True)
    session = _session(folder)
    session.dataSource.register(XbusDataSource)
    source = {"config": config, "eventType": "orders"}
    sink = {"front": front, "login": "emitter_1", "password": os.environ[PASSWORD_VARIABLE], "eventType": "notes"}
    read = session.read.format("xbus").options(**source).load()
    read.explain(True)
    read.explain("formatted")
    items = read.select("data")
    items.write.format("xbus").mode("append").options(**sink).save()
    _stream(session, source, sink, folder)
    wrong = {**sink, "password": sink["password"] + "-wrong", "retrySeconds": "20"}
    _failing(items, wrong)
    _write_pages(session, folder)
    session.stop()


def _session(folder: Path) -> SparkSession:
    spark.use_environment()
    kept = {
        **spark.settings(folder),
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_port()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    return SparkSession.Builder().master("local[2]").appName("secrets").config(map=dict(kept)).getOrCreate()


def _stream(session: SparkSession, source: dict[str, str], sink: dict[str, str], folder: Path) -> None:
    stream = session.readStream.format("xbus").options(**source).load().select("data")
    writer = stream.writeStream.format("xbus").options(**sink).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.queryName("copy").trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    for progress in (query.lastProgress, *query.recentProgress, query.status):
        print(progress)  # noqa: T201


def _failing(items: DataFrame, sink: dict[str, str]) -> None:
    try:
        items.write.format("xbus").mode("append").options(**sink).save()
    except Exception as error:
        print(error)  # noqa: T201
    else:
        raise AssertionError("a wrong password was taken")


def _write_pages(session: SparkSession, folder: Path) -> None:
    context = session.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(int(1000 * spark.SECONDS))
    base, application = f"http://{spark.LOOPBACK}:{context.getConf().get('spark.ui.port')}", context.applicationId
    pages = [*PAGES, *(f"api/v1/applications/{application}/{name}" for name in OF_APPLICATION)]
    for number, page in enumerate(pages):
        with urllib.request.urlopen(f"{base}/{page}", timeout=spark.SECONDS) as answer:
            (folder / f"page-{number}.txt").write_bytes(answer.read())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
