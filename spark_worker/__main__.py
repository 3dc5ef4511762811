"""``python -m spark_worker``, the same as ``xbus-spark-worker``."""

from spark_worker.programs import run_worker

run_worker()
