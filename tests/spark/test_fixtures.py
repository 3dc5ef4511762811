"""The session and the cluster that the other tests here stand on."""

import sys

import pytest
from pyspark.sql import SparkSession

from tests.support.processes import run
from tests.support.spark import SECONDS, Cluster, environment
from tests.support.waiting import wait_until

COUNTING = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
print(session.range(0, 1000, numPartitions=4).selectExpr("sum(id)").collect()[0][0])
session.stop()
"""


def test_the_session_runs_python(spark: SparkSession) -> None:
    doubled = spark.sparkContext.parallelize([1, 2, 3], 2).map(lambda number: number * 2).collect()

    assert doubled == [2, 4, 6]


@pytest.mark.cluster
def test_the_cluster_takes_jobs(spark_cluster: Cluster) -> None:
    done = run(sys.executable, "-c", COUNTING, spark_cluster.url, env=environment(), timeout=SECONDS)

    assert done.stdout.split() == ["499500"], done.stderr
    wait_until(lambda: not spark_cluster.executors(), "the executors have ended with their session", SECONDS)
