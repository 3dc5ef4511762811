"""Jobs beside the event loop, with a Spark that only pretends."""

import asyncio
import threading
from typing import Any

import pytest

from spark_worker.items.errors import ClusterUnreachable
from spark_worker.worker import running
from spark_worker.worker.running import Runner
from tests.support.waiting import eventually
from xbus.errors import Failed
from xbus.recipient import Refusal


class Pretended:
    """Stands for a session: whether it is there, and what was cancelled."""

    def __init__(self) -> None:
        self.alive = True
        self.executors = 1
        self.done = 0.25
        self.cancelled = threading.Event()
        self.tags: list[str] = []

    def cancel(self, _: object, tag: str) -> None:
        self.tags.append(tag)
        self.cancelled.set()

    def work(self) -> str:
        """Goes on until it is cancelled."""
        assert self.cancelled.wait(20)
        raise RuntimeError("[SPARK_JOB_CANCELLED] Job 1 cancelled part of cancelled job tags")


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended()
    monkeypatch.setattr(running, "cancel", pretended.cancel)
    monkeypatch.setattr(running, "is_alive", lambda _: pretended.alive)
    monkeypatch.setattr(running, "executors", lambda _: pretended.executors)
    monkeypatch.setattr(running, "fraction", lambda *_: pretended.done)
    monkeypatch.setattr(Runner, "_tagged", lambda _, __, work: work())
    return pretended


def runner(patience: float = 60.0) -> Runner:
    session: Any = None
    return Runner(session, patience, look_seconds=0.01)


async def test_what_a_job_returns_is_answered(spark: Pretended) -> None:
    assert await runner().run("tag", lambda: "made", lambda _: None) == "made"


async def test_progress_never_goes_back(spark: Pretended) -> None:
    told: list[float] = []

    def tell(fraction: float) -> None:
        told.append(fraction)
        spark.done = {1: 0.5, 2: 0.125}.get(len(told), 0.75)
        if len(told) == 4:
            spark.cancelled.set()

    with pytest.raises(Failed):
        await runner().run("tag", spark.work, tell)

    assert told[:4] == [0.25, 0.5, 0.5, 0.75]


async def test_a_job_that_is_not_wanted_is_cancelled_and_awaited(spark: Pretended) -> None:
    begun = asyncio.Event()
    job = asyncio.create_task(runner().run("the tag", spark.work, lambda _: begun.set()))
    await begun.wait()

    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job

    assert set(spark.tags) == {"the tag"}


async def test_it_is_ended_also_when_nobody_waits_for_that(spark: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), threading.Event()
    job = asyncio.create_task(runner().run("the tag", lambda: ended.wait(20), lambda _: begun.set()))
    await begun.wait()

    job.cancel()
    await eventually(lambda: spark.tags, "its end is begun")
    job.cancel()
    await eventually(job.cancelled, "nobody waits for it any more")

    before = len(spark.tags)
    await eventually(lambda: len(spark.tags) > before, "it goes on being ended")
    ended.set()


async def test_what_it_raises_is_classed(spark: Pretended) -> None:
    def broken() -> None:
        raise ValueError("no such airline")

    with pytest.raises(Refusal, match="ValueError: no such airline"):
        await runner().run("tag", broken, lambda _: None)


async def test_a_cluster_without_executors_is_gone_after_a_while(spark: Pretended) -> None:
    spark.executors = 0

    with pytest.raises(ClusterUnreachable, match="no executor"):
        await runner(patience=0.05).run("tag", spark.work, lambda _: None)

    assert spark.tags


async def test_a_session_that_ended_is_gone_at_once(spark: Pretended) -> None:
    spark.alive = False

    with pytest.raises(ClusterUnreachable, match="the Spark cluster is gone"):
        await runner().run("tag", spark.work, lambda _: None)
    spark.cancelled.set()  # lets the thread end


async def test_what_never_ends_is_waited_for_until_the_end_only(spark: Pretended) -> None:
    begun, never = asyncio.Event(), threading.Event()
    running = runner()
    job = asyncio.create_task(running.run("the tag", never.wait, lambda _: begun.set()))
    await begun.wait()
    job.cancel()
    assert not (await asyncio.wait([job], timeout=0.1))[0]

    running.close()

    async with asyncio.timeout(20):
        await asyncio.wait([job])
    assert job.cancelled()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "job")
    never.set()
