"""The Spark session of a worker: how it is set up, whether it still lives, and how it is made anew."""

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_worker.items.errors import ClusterUnreachable
from spark_worker.items.failures import brief
from spark_worker.spark.java import use_java
from spark_worker.spark.master import is_local, places

SETTINGS: Mapping[str, str] = {
    "spark.driver.memory": "1g",
    "spark.scheduler.mode": "FAIR",
    # Otherwise data between tasks stays on the disk until Java collects its garbage, which may be never.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.speculation": "false",  # two tasks of one part would write it twice
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "32",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The differences from Spark's defaults; ``--conf`` has the last word."""

LOOPBACK = "127.0.0.1"
PROBE_SECONDS = 5.0


def settings(master: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Give the settings of a session at a master.

    Args:
        master: as Spark names it, such as ``local[*]`` or ``spark://host:7077``.
        extra: the user's own, which win.
    """
    place: dict[str, str] = {}
    if is_local(master) or {host for host, _ in places(master)} == {LOOPBACK}:
        # Else Spark takes whatever network interface it finds first.
        place = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return {**SETTINGS, **place, **extra}


def master_of(session: SparkSession) -> str:
    """Give the master of a session, as Spark names it."""
    return session.sparkContext.master or "local"


def check_reachable(master: str) -> None:
    """Make sure that somebody listens where the master should be: Spark itself would only say so after a minute.

    Raises:
        ClusterUnreachable: nobody does.
    """
    refused = []
    for host, port in places(master):
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except OSError as error:
            refused.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    if refused:
        raise ClusterUnreachable(
            f"no Spark master answers at {', '.join(refused)}", "start the cluster, or correct --master"
        )


def open_session(master: str, extra: Mapping[str, str], name: str) -> SparkSession:
    """Start Spark, or connect to the cluster.

    Args:
        master: as Spark names it.
        extra: settings of the user's own.
        name: the name of the application in Spark's pages.

    Raises:
        ConfigurationError: no Java is new enough for it.
        ClusterUnreachable: the cluster does not answer, or takes no application now.
    """
    check_reachable(master)
    use_java()
    # Without these the executors run whatever "python3" is on the PATH, which may lack everything.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings(master, extra).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # Py4JJavaError and others: the JVM raised an error, or is gone
        cause = brief(error)  # before the JVM is ended, which has the words
        forget_session()
        raise ClusterUnreachable(
            f"Spark does not start at {master} ({cause})",
            "see what Java said on standard error, and correct --master or --conf",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def is_alive(session: SparkSession) -> bool:
    """Check whether the session can run jobs: its JVM lives, and the cluster keeps the application."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


def executors(session: SparkSession) -> int:
    """Count the executors of the application; a local session has one."""
    known: int = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    return known if is_local(master_of(session)) else known - 1


def may_have_none(session: SparkSession) -> bool:
    """Check whether an idle application may have no executor: they come with the work."""
    return session.conf.get("spark.dynamicAllocation.enabled", "false") == "true"


def close_session(session: SparkSession) -> None:
    """End the application; nothing is raised where its JVM is gone already."""
    with suppress(Exception):
        session.stop()
    forget_session()


def forget_session() -> None:
    """Let the next session start with a JVM of its own: the former one may be dead."""
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
        if process := getattr(gateway, "proc", None):
            with suppress(Exception):
                process.stdin.close()
                process.wait(timeout=PROBE_SECONDS)
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


OF_EXECUTORS = "SPARK_LOCAL_DIRS, or the machine's folder for temporary files"
"""The words about the machines of a cluster."""


def scratch_folders(session: SparkSession) -> str:
    """Name the folders for whoever has to make room, with commas between; for a cluster the setting that names them."""
    try:
        if not is_local(master_of(session)):
            return OF_EXECUTORS
        set_here = session.sparkContext.getConf().get("spark.local.dir")
    except Exception:  # py4j: the JVM is gone
        return OF_EXECUTORS
    return os.environ.get("SPARK_LOCAL_DIRS") or set_here or tempfile.gettempdir()
