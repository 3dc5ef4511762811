"""The folder in which Spark keeps the data that exceeds memory, and that it moves between tasks."""

import os
import tempfile

from pyspark.sql import SparkSession

from spark_worker.spark.session import is_local, master_of

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
