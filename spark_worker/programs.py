"""``xbus-spark-worker`` as pip installs it; it says in one line which extra it lacks."""

from xbus import ending, extras


def run_worker() -> None:
    """Run ``xbus-spark-worker``."""
    with ending.in_one_line("xbus-spark-worker"):
        extras.require("the Spark worker", "spark", extras.SPARK)
    from spark_worker.cli import main

    main(prog_name="xbus-spark-worker")
