"""The bulk transform on a standalone cluster of a master and two workers, each kept to a core of its own as if it were
a machine that has no more: items a second with two executors. Floor: the same with one.

All of them give the same items in the same order as a worker with a session of its own.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.databases import Databases
from benchmarks.result import Result
from benchmarks.spark import bulk
from benchmarks.spark.sizes import Sizes
from tests.support.spark import Cluster

EXECUTOR = ("spark.executor.cores=1", "spark.executor.memory=600m")


def measure(databases: Databases, sizes: Sizes) -> Iterator[tuple[str, Result]]:
    """One event each: without a cluster, with one executor, with two."""

    def run(master: str, *settings: str) -> bulk.BulkRun:
        with databases() as url:
            return bulk.transform(url, sizes.warm_items, sizes.cluster_items, master, settings)

    local = run("local[2]")
    with tempfile.TemporaryDirectory(prefix="xbus-benchmark-") as name, Cluster(Path(name), is_pinned=True) as cluster:
        one = run(cluster.url, "spark.cores.max=1", *EXECUTOR)
        two = run(cluster.url, "spark.cores.max=2", *EXECUTOR)
    assert {(each.items, each.digest) for each in (one, two)} == {(local.items, local.digest)}, "the answers are alike"
    yield "cluster", Result(sizes.cluster_items / two.seconds, sizes.cluster_items / one.seconds, "items/s")
