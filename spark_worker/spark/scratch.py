"""The folder in which Spark keeps the data that exceeds memory, and that it moves between tasks."""

import os
import tempfile

from pyspark.sql import SparkSession

from spark_worker.spark.session import is_local, master_of

OF_EXECUTORS = "SPARK_LOCAL_DIRS, or the machine's folder for temporary files"
"""What can be said of the machines of a cluster."""


def scratch_folders(session: SparkSession) -> str:
    """The folders, with commas between, for whoever has to make room; of a cluster the setting that names them."""
    try:
        if not is_local(master_of(session)):
            return OF_EXECUTORS
        set_here = session.sparkContext.getConf().get("spark.local.dir")
    except Exception:  # py4j: there is no JVM to ask any more
        return OF_EXECUTORS
    return os.environ.get("SPARK_LOCAL_DIRS") or set_here or tempfile.gettempdir()
