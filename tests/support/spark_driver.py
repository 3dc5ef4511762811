"""What a driver on a cluster does with the bus for a test; it runs in a process of its own, which has one session."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

from pyspark.sql import DataFrame, SparkSession

from tests.support import spark
from tests.support.spark import SECONDS

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

Options: TypeAlias = dict[str, str]

Row: TypeAlias = tuple[int, int, bytes]
"""Position, index and item."""


class Driver:
    """A process whose session is on a cluster, from ``with`` to the end of the block.

    Args:
        url: of the cluster's master.
        folder: for what Spark leaves.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self._begin_with = url, folder

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self._process.shutdown()

    def do(self, work: Callable[Given, Answer], *args: Given.args, **more: Given.kwargs) -> Answer:
        """Have a function of this module done there.

        Raises:
            TimeoutError: it takes too long.
        """
        self._process.submit(_join, *self._begin_with).result(SECONDS)
        return self._process.submit(work, *args, **more).result(SECONDS)

    def leave(self) -> None:
        """End the session, so that others have the cluster's cores; the next ``do`` makes another."""
        self._process.submit(_leave).result(SECONDS)


def _join(url: str, folder: Path) -> None:
    spark.use_environment()
    # Of one core and half the memory each, so that tasks run in two processes.
    kept = {**spark.settings(folder), "spark.executor.memory": "512m", "spark.executor.cores": "1"}
    session = SparkSession.Builder().master(url).appName("driver").config(map=dict(kept)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")


def _leave() -> None:
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()


def read(options: Options) -> tuple[list[Row], int]:
    """What the source gives, in the order of the log; and how many partitions it had."""
    frame = _session().read.format("xbus").options(**options).load()
    return _rows(frame), frame.rdd.getNumPartitions()


def read_stream(options: Options, checkpoint: Path) -> list[list[Row]]:
    """What a query gives until it has read what is there now, batch by batch."""
    batches: list[list[Row]] = []
    frame = _session().readStream.format("xbus").options(**options).load()
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: batches.append(_rows(batch))).start().awaitTermination()
    return batches


def write(items: int, options: Options) -> None:
    """Send numbers as text, staged by two tasks."""
    frame = _session().range(0, items, numPartitions=2).selectExpr("string(id) AS data")
    frame.write.format("xbus").mode("append").options(**options).save()


def pump(source: Options, sink: Options, checkpoint: Path) -> None:
    """Send on what the source has now."""
    frame = _session().readStream.format("xbus").options(**source).load()
    writer = frame.writeStream.format("xbus").options(**sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def _session() -> SparkSession:
    session: SparkSession | None = SparkSession.getActiveSession()
    assert session is not None
    return session


def _rows(frame: DataFrame) -> list[Row]:
    ordered: list[Any] = frame.orderBy("position", "event_id", "index").collect()
    return [(row["position"], row["index"], bytes(row["data"])) for row in ordered]
