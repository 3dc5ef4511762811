"""The session that measures, and what it reads beside the journal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.bus import EVENT_TYPE
from tests.support import spark as support
from tests.support.daemon import write_config

DRIVER_MEMORY = "1g"
PLAIN_COLUMN = "parquet.enable.dictionary#data"
"""Of real items no two are alike, so that Parquet's dictionary is of no use; of ours each comes many times."""


@contextmanager
def local_session(folder: Path, cores: int = 2) -> Iterator[SparkSession]:
    """A session of this process, with as much memory as a worker has.

    Args:
        folder: for its files.
    """
    support.use_environment()
    builder = SparkSession.Builder().master(f"local[{cores}]").appName("benchmarks")
    settings = {**support.settings(folder, DRIVER_MEMORY), "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    session = builder.config(map=dict(settings)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def journal(session: SparkSession, folder: Path, url: str, **options: str) -> DataFrame:
    """The items in the journal at ``url``, by the source.

    Args:
        folder: for the configuration file that names the database.
        options: further options of the source.
    """
    reader = session.read.format("xbus").option("config", config_of(folder, url)).option("eventType", EVENT_TYPE)
    return reader.options(**options).load()


def config_of(folder: Path, url: str) -> str:
    """The path of a configuration file for a database."""
    folder.mkdir(parents=True, exist_ok=True)
    return str(write_config(folder / "config.ini", url))


def to_parquet(items: DataFrame, place: Path) -> str:
    """Write items as Parquet files; their path."""
    items.write.option(PLAIN_COLUMN, "false").mode("overwrite").parquet(str(place))
    return str(place)


def read_all(items: DataFrame) -> None:
    """Have Spark make every column of every row, and throw it away."""
    items.write.format("noop").mode("overwrite").save()


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
