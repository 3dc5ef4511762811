"""``python -m spark_worker``, the same as ``xbus-spark-worker``."""

from spark_worker.cli import main

main()
