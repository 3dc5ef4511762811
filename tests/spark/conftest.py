"""A session and a cluster that all tests of a run share: each takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import StartProcess
from tests.support import spark as support
from tests.support.bus import PASSWORD
from tests.support.daemon import Daemon
from tests.support.processes import Process, script
from tests.support.spark import Cluster
from tests.support.spark_worker import GROWN_BYTES, RULES, SCHEMA, StartWorker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bench: measures with next to nothing, which takes minutes all the same")
    config.addinivalue_line("markers", "slow: kills drivers of Spark or fills disks, and starts a Java for each")
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


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for which the transform ``slow`` waits."""
    return tmp_path / "gate"


@pytest.fixture
def start_worker(start_process: StartProcess, tmp_path: Path, gate: Path) -> StartWorker:
    """Starts a worker of role spark_1; that it is there is waited for with ``registered``."""
    (tmp_path / "rules.py").write_text(RULES.format(gate=str(gate), grown_bytes=GROWN_BYTES))

    def start(daemon: Daemon, transform: str = "rules:double", *more: str, login: str = "spark_1") -> Process:
        return start_process(
            *(script("xbus-spark-worker"), "-c", daemon.config, "--login", login, "--back", daemon.back),
            *("--transform", transform, "--format", "json", "--schema", SCHEMA),
            *("--master", "local[2]", "--min-items", "50"),
            *("--conf", "spark.driver.memory=512m", *more),
            cwd=tmp_path,
            env={**support.environment(), "XBUS_PASSWORD": PASSWORD},
        )

    return start
