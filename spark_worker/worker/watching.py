"""Watches the progress of a job and ends it, by the tag of its Spark jobs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

MOST_SHOWN = 0.99


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag all that this thread has Spark do inside the block.

    Kinds of jobs share the cores evenly, so that a small event need not wait for the end of a large one.

    Args:
        tag: the kind of job, a colon, and its name.
    """
    context = session.sparkContext
    # In a thread that has none, Spark looks for data sources everywhere but in this session.
    jvm: Any = context._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
    context.addJobTag(tag)
    context.setLocalProperty("spark.scheduler.pool", tag.partition(":")[0])
    try:
        yield
    finally:
        try:
            context.removeJobTag(tag)
        except Exception:  # noqa: S110 - the JVM is gone; the exception of the block says what failed
            pass


def cancel(session: SparkSession, tag: str) -> None:
    """End what runs with the tag now; what begins later must be cancelled again."""
    session.sparkContext.cancelJobsWithTag(tag)


def fraction(session: SparkSession, tag: str) -> float:
    """Compute the done part of a job's known tasks, from 0 to 1."""
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    return share(_tasks(tracker, job_id) for job_id in tracker.getJobIdsForTag(tag))


def _tasks(tracker: Any, job_id: int) -> tuple[int, int]:
    """Count the done tasks of a Spark job, and all of them."""
    job = tracker.getJobInfo(job_id)
    stage_ids = () if job.isEmpty() else job.get().stageIds()
    stages = [stage.get() for stage in map(tracker.getStageInfo, stage_ids) if stage.isDefined()]
    return sum(stage.numCompletedTasks() for stage in stages), sum(stage.numTasks() for stage in stages)


def share(jobs: Iterable[tuple[int, int]]) -> float:
    """Compute the common progress of Spark's jobs, from 0 to less than 1: only their end shows that none follows.

    A job of a single task, such as the reading of a small table that is joined, comes before the others and says
    nothing of how far they are.

    Args:
        jobs: of each, how many tasks are done, and how many it has.
    """
    known = [(done, total) for done, total in jobs if total > 1]
    if not known:
        return 0.0
    return min(sum(done for done, _ in known) / sum(total for _, total in known), MOST_SHOWN)
