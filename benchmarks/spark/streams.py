"""A stream over a log, and what its micro-batches cost."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from benchmarks.bus import EVENT_TYPE
from benchmarks.spark.sessions import config_of


@dataclass(frozen=True)
class MicroBatch:
    """One of them.

    Attributes:
        items: how many rows it had.
        seconds: from its trigger to its commit.
    """

    items: int
    seconds: float


def journal_stream(session: SparkSession, folder: Path, url: str, most_items: int) -> DataFrame:
    """All items of a log, so many to a micro-batch."""
    reader = session.readStream.format("xbus").option("config", config_of(folder, url)).option("eventType", EVENT_TYPE)
    return reader.option("startingPosition", "earliest").option("maxItemsPerTrigger", str(most_items)).load()


def run(stream: DataFrame) -> list[MicroBatch]:
    """Stream all that is there into nothing; the micro-batches that had items."""
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [dict(each) for each in query.recentProgress]
    batches = [MicroBatch(each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000) for each in progress]
    return [batch for batch in batches if batch.items]


def rate(batches: Sequence[MicroBatch]) -> float:
    """Items a second."""
    return sum(batch.items for batch in batches) / sum(batch.seconds for batch in batches)


def median_seconds(batches: Sequence[MicroBatch]) -> float:
    """Of a micro-batch."""
    return median(batch.seconds for batch in batches)
