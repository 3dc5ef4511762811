"""How far a job is, and how it is ended: by the tag that all its Spark jobs bear."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Everything that this thread has Spark do inside the block bears the tag."""
    context = session.sparkContext
    # In a thread that has none, Spark looks for data sources everywhere but in this session.
    jvm: Any = context._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    context.addJobTag(tag)
    try:
        yield
    finally:
        try:
            context.removeJobTag(tag)
        except Exception:  # the JVM is gone; what failed is told by what came out of the block
            pass


def cancel(session: SparkSession, tag: str) -> None:
    """End what runs with the tag now; what begins later must be cancelled again."""
    session.sparkContext.cancelJobsWithTag(tag)


def fraction(session: SparkSession, tag: str) -> float:
    """How much of a job's tasks are done, from 0 to 1, of those that are known so far."""
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    done = total = 0
    for job_id in tracker.getJobIdsForTag(tag):
        job = tracker.getJobInfo(job_id)
        if job.isEmpty():
            continue
        for stage_id in job.get().stageIds():
            stage = tracker.getStageInfo(stage_id)
            if stage.isDefined():
                total += stage.get().numTasks()
                done += stage.get().numCompletedTasks()
    return done / total if total else 0.0
