"""A session and a cluster that all tests of a run share: each takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support import spark as support
from tests.support.spark import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bench: measures with next to nothing, which takes minutes all the same")
    config.addinivalue_line("markers", "cluster: needs a standalone cluster of Spark, a master and two workers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests pass in which PySpark leaves a socket to the garbage collector."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this run: local, two cores. Who changes a setting of it sets it back."""
    folder = tmp_path_factory.mktemp("spark")
    support.use_environment()
    builder = SparkSession.Builder().master("local[2]").appName("tests")
    session = builder.config(map=dict(support.settings(folder))).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with a core each; who stops a part of it starts it again.

    A test that uses it is marked ``cluster``, and starts its session in a process of its own.
    """
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
