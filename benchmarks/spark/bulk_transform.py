"""A worker with a driver heap of 1 GiB on two cores makes the output of one large event, three lines:

``bulk_transform``: items of the event a second, from the hand-over until the output is ready: reading them, parsing
JSON, filtering and enriching, writing. Floor: Spark doing the same from Parquet files to Parquet files.
``bulk_transform_msgpack``: the same of the same values in msgpack. Floor: that of JSON.
``bulk_transform_broker``: the peak memory of the broker's process, in MiB. Floor: its memory before a recipient came.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.backlog import add_backlog
from benchmarks.bus import set_up
from benchmarks.databases import Databases
from benchmarks.result import Result
from benchmarks.spark import bulk
from benchmarks.spark.enriching import enriched, make_classes, parsed
from benchmarks.spark.sessions import DRIVER_MEMORY, PLAIN_COLUMN, journal, local_session, seconds, to_parquet
from benchmarks.spark.sizes import Sizes


def measure(databases: Databases, sizes: Sizes) -> Iterator[tuple[str, Result]]:
    """One large event: to read and write so much takes long enough to be measured once."""
    run, of_msgpack = _run(databases, sizes, "json"), _run(databases, sizes, "msgpack")
    rate, rate_of_msgpack = sizes.bulk_items / run.seconds, sizes.bulk_items / of_msgpack.seconds
    yield "bulk_transform", Result(rate, _plain_rate(databases, sizes, run.items), "items/s")
    yield "bulk_transform_msgpack", Result(rate_of_msgpack, rate, "items/s")
    yield "bulk_transform_broker", Result(run.peak_mib, run.idle_mib, "MiB")


def _run(databases: Databases, sizes: Sizes, items_format: str) -> bulk.BulkRun:
    settings = (f"spark.driver.memory={DRIVER_MEMORY}",)
    with databases() as url:
        return bulk.transform(url, sizes.warm_items, sizes.bulk_items, "local[2]", settings, items_format)


def _plain_rate(databases: Databases, sizes: Sizes, expected: int) -> float:
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as name, local_session(Path(name)) as session:
        folder = Path(name)
        with databases() as url:
            set_up(url)
            add_backlog(url, 1, sizes.warm_items)
            add_backlog(url, 1, sizes.bulk_items, after=1)
            for place, last in (("warm", "1"), ("items", "2")):
                to_parquet(journal(session, folder, url, **{"from": last, "to": last}), folder / place)
        _from_parquet_to_parquet(session, folder / "warm", folder / "out")
        took = seconds(lambda: _from_parquet_to_parquet(session, folder / "items", folder / "out"))
        assert session.read.parquet(str(folder / "out")).count() == expected, "it made the same items"
    return sizes.bulk_items / took


def _from_parquet_to_parquet(session: SparkSession, source: Path, target: Path) -> None:
    items = session.read.parquet(str(source))
    rows = items.select(sf.col("index").alias("_index"), parsed(sf.col("data")).alias("row")).select("_index", "row.*")
    made = enriched(rows, make_classes(session))
    _as_json(made).write.option(PLAIN_COLUMN, "false").mode("overwrite").parquet(str(target))


def _as_json(made: DataFrame) -> DataFrame:
    columns = [name for name in made.columns if name != "_index"]
    return made.select("_index", sf.to_json(sf.struct(*columns)).cast("binary").alias("data"))
