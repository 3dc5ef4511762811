"""Reading the journal through the source, all columns, on two cores: items a second.

Floor: the same session reading the same rows from Parquet files.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.backlog import add_backlog
from benchmarks.bus import set_up
from benchmarks.databases import Databases
from benchmarks.result import Result
from benchmarks.spark.sessions import journal, local_session, read_all, seconds, to_parquet
from benchmarks.spark.sizes import Sizes

WARM_ROUNDS = 2
"""Each is read so often before it is measured: the JVM compiles what runs for some seconds."""


def measure(databases: Databases, sizes: Sizes) -> Iterator[tuple[str, Result]]:
    """Rounds of the journal and of Parquet in one session."""
    items = sizes.read_envelopes * sizes.read_items
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as name, databases() as url:
        folder = Path(name)
        set_up(url)
        add_backlog(url, sizes.read_envelopes, sizes.read_items)
        with local_session(folder) as session:
            logged = journal(session, folder, url)
            stored = session.read.parquet(to_parquet(logged, folder / "items"))
            assert stored.count() == items, "all of it was read"
            for rows in (logged, stored) * WARM_ROUNDS:
                read_all(rows)
            rounds = [(_rate(logged, items), _rate(stored, items)) for _ in range(sizes.rounds)]
    yield "source_read", Result.median(rounds, "items/s")


def _rate(rows: DataFrame, items: int) -> float:
    return items / seconds(lambda: read_all(rows))
