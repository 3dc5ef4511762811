"""Runs a job beside the event loop: reports its progress, and really ends it when nobody wants it any more."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from pyspark.sql import SparkSession

from spark_worker.items.errors import ClusterUnreachable
from spark_worker.items.failures import of_job
from spark_worker.spark.session import executors, is_alive, scratch_folders
from spark_worker.worker.watching import cancel, fraction, tagged

LOOK_SECONDS = 0.5

Answer = TypeVar("Answer")


class Runner:
    """Runs jobs on a session, each in a thread.

    Args:
        session: Spark.
        patience: seconds that a job may go without any executor before the cluster counts as gone.
        look_seconds: how often it looks after the cluster.
    """

    def __init__(
        self,
        session: SparkSession,
        patience: float,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._session = session
        self._patience = patience
        self._look_seconds = look_seconds
        self._is_closed = False
        self._endings: set[asyncio.Future[None]] = set()

    async def run(self, tag: str, work: Callable[[], Answer], tell: Callable[[float], None]) -> Answer:
        """Have a job done.

        Args:
            tag: the tag of its Spark jobs; of this job alone.
            work: the job; blocks.
            tell: called with its progress, from 0 to 1.

        Raises:
            Refusal: the same job would fail again.
            Failed: it may succeed later; so may ``JournalUnavailable``.
        """
        job = in_thread(lambda: self._tagged(tag, work))
        try:
            await self._watch(job, tag, tell)
            return job.result()
        except asyncio.CancelledError:
            await self._ended(job, tag)
            raise
        except Exception as error:
            await self._ended(job, tag)
            raise of_job(error, await asyncio.to_thread(scratch_folders, self._session)) from error

    def close(self) -> None:
        """Wait no more for the end of jobs: the author's code may never return."""
        self._is_closed = True

    def _tagged(self, tag: str, work: Callable[[], Answer]) -> Answer:
        with tagged(self._session, tag):
            return work()

    async def _watch(self, job: "asyncio.Future[Answer]", tag: str, tell: Callable[[float], None]) -> None:
        """Wait for the job, and look after the cluster meanwhile.

        Raises:
            ClusterUnreachable: it has had no executor for too long, or gave the application up.
        """
        furthest = 0.0
        last_seen = monotonic()
        while not (await asyncio.wait([job], timeout=self._look_seconds))[0]:
            alive, there, done = await asyncio.to_thread(self._look, tag)
            furthest = max(furthest, done)
            tell(furthest)
            if there:
                last_seen = monotonic()
            if not alive or monotonic() - last_seen > self._patience:
                raise ClusterUnreachable(
                    "the Spark cluster is gone" if not alive else f"no executor for {self._patience:.0f} s",
                    "see that the cluster runs",
                )

    def _look(self, tag: str) -> tuple[bool, bool, float]:
        """Check whether Spark is alive and has an executor, and how far the job is."""
        try:
            return is_alive(self._session), executors(self._session) > 0, fraction(self._session, tag)
        except Exception:  # py4j: the JVM just went away; the next look tells so
            return is_alive(self._session), False, 0.0

    async def _ended(self, job: "asyncio.Future[Answer]", tag: str) -> None:
        """Wait for its end. The waiting caller may be cancelled once more: the job is ended all the same."""
        ending = asyncio.ensure_future(self._end(job, tag))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        await asyncio.shield(ending)

    async def _end(self, job: "asyncio.Future[Answer]", tag: str) -> None:
        """Cancel until the job has ended: what it begins after a cancellation is not touched by that."""
        while not job.done() and not self._is_closed:
            with suppress(Exception):  # there may be no JVM any more
                await asyncio.to_thread(cancel, self._session, tag)
            if not is_alive(self._session):
                return  # nothing runs there any more, and the thread may wait for an answer for ever
            await asyncio.wait([job], timeout=self._look_seconds)
        if job.done() and not job.cancelled():
            job.exception()  # it is known: else it would be logged as never looked at


def in_thread(work: Callable[[], Answer]) -> "asyncio.Future[Answer]":
    """Run a function in a thread of its own; the future gets its result or its exception."""
    done: Future[Answer] = Future()

    def carry_out() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # as of sys.exit() in the author's code, too
            done.set_exception(error)

    done.set_running_or_notify_cancel()
    # A daemon: author's code that never returns must not keep the program from ending.
    threading.Thread(target=carry_out, name="job", daemon=True).start()
    return asyncio.wrap_future(done)
