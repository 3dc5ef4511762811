"""Streaming from the journal on two cores, three lines:

``stream``: items a second of large micro-batches, one after the other. Floor: the same rows out of Parquet files.
``stream_smallest``: ms of a micro-batch of ten items, from its trigger to its commit. Floor: those of a source of
Spark's own that makes its rows itself.
``stream_flat``: items a second of micro-batches of 100,000 items in a log of ten million. Floor: the same in a log that
ends with the first of them.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.backlog import add_backlog
from benchmarks.bus import set_up
from benchmarks.databases import Databases
from benchmarks.result import Result
from benchmarks.spark.sessions import journal, local_session, to_parquet
from benchmarks.spark.sizes import Sizes
from benchmarks.spark.streams import journal_stream, median_seconds, rate, run

MS = 1_000
FEW_ITEMS = 10


def measure(databases: Databases, sizes: Sizes) -> Iterator[tuple[str, Result]]:
    """All three in one session."""
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as name, local_session(Path(name)) as session:
        folder = Path(name)
        yield "stream", _steady(databases, sizes, session, folder)
        yield "stream_smallest", _smallest(databases, sizes, session, folder)
        yield "stream_flat", _flat(databases, sizes, session, folder)


def _steady(databases: Databases, sizes: Sizes, session: SparkSession, folder: Path) -> Result:
    with databases() as url:
        set_up(url)
        files = sizes.stream_batches + 1
        add_backlog(url, files, sizes.stream_items)
        logged = journal_stream(session, folder, url, sizes.stream_items)
        items = journal(session, folder, url, partitions=str(files)).repartitionByRange(files, "position")
        stored = _parquet_stream(session, items, folder / "items")
        rounds = [(rate(run(logged)[1:]), rate(run(stored)[1:])) for _ in range(sizes.rounds)]
    return Result.median(rounds, "items/s")


def _parquet_stream(session: SparkSession, items: DataFrame, place: Path) -> DataFrame:
    """The same rows, a file of them to a micro-batch."""
    path = to_parquet(items, place)
    return session.readStream.schema(items.schema).option("maxFilesPerTrigger", 1).parquet(path)


def _smallest(databases: Databases, sizes: Sizes, session: SparkSession, folder: Path) -> Result:
    with databases() as url:
        set_up(url)
        add_backlog(url, sizes.small_batches + 1, FEW_ITEMS)
        logged = run(journal_stream(session, folder, url, FEW_ITEMS))[1:]
    made = session.readStream.format("rate-micro-batch").option("rowsPerBatch", FEW_ITEMS).load()
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as checkpoint:
        query = made.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        while len(query.recentProgress) <= sizes.small_batches:
            query.awaitTermination(1)
        query.stop()
        progress = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
    return Result(median_seconds(logged) * MS, sorted(progress[1:])[len(progress[1:]) // 2], "ms")


def _flat(databases: Databases, sizes: Sizes, session: SparkSession, folder: Path) -> Result:
    def rate_of(times: int, queries: int) -> float:
        """Of micro-batches of one size in a log of so many of them, and one ahead that warms up."""
        with databases() as url:
            set_up(url)
            add_backlog(url, times + 1, sizes.flat_items)
            stream = journal_stream(session, folder, url, sizes.flat_items)
            return rate([batch for _ in range(queries) for batch in run(stream)[1:]])

    return Result(rate_of(sizes.flat_times, 1), rate_of(1, sizes.flat_queries), "items/s")
