"""The Spark worker as a program on a real bus: an emitter before it, a consumer behind it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import StartDaemon
from tests.support.bus import add_bus
from tests.support.chained import add_copies, copied_hashes, output_hashes
from tests.support.daemon import Daemon
from tests.support.operating import run_xbus, xbus
from tests.support.processes import Process
from tests.support.serving import serving
from tests.support.spark import SECONDS, Cluster
from tests.support.spark_worker import (
    GRAPH,
    Keeps,
    StartWorker,
    at_work,
    emit,
    order,
    registered,
    told,
)
from tests.support.waiting import answered, eventually


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[None]:
    """A cluster inside the block; recipients of this process are served while it starts and ends."""
    await asyncio.to_thread(cluster.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.kill)


async def detached(daemon: Daemon) -> None:
    """Detach the consumer's role: only one that nobody serves can be, as the broker may be about to notice."""

    async def done() -> bool:
        command = ("recipient", "detach", "store_1", "--yes", "--reason", "a test")
        return (await run_xbus(daemon, *command)).returncode == 0

    await answered(done, "the role is detached", SECONDS)


def signalled(worker: Process) -> bool:
    """Tell a worker to end, and whether it has: it says that it was told so just before the next signal ends it."""
    if worker.runs:
        worker.signal(signal.SIGTERM)
    return not worker.runs


def doubled(number: int) -> list[tuple[list[int], Any]]:
    return [([n], {"id": n, "code": f"c{n}", "twice": 2 * n}) for n in range(0, number, 2)]


async def test_large_and_small_events_come_to_the_same(
    database_url: str, start_daemon: StartDaemon, start_worker: StartWorker
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    worker = start_worker(daemon)
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        large = await emit(daemon, [order(number) for number in range(400)])
        small = await emit(daemon, [order(number) for number in range(20)])
        await eventually(lambda: {large, small} <= set(store.committed), "both were delivered", SECONDS)

    assert store.committed[large] == doubled(400)
    assert store.committed[small] == doubled(20)
    assert worker.stop(SECONDS) == 0


async def test_what_spark_made_is_emitted_as_it_lies(
    database_url: str, start_daemon: StartDaemon, start_worker: StartWorker
) -> None:
    add_copies(database_url, "orders", "spark")
    daemon = start_daemon(database_url)
    worker = start_worker(daemon)
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        await emit(daemon, [order(number) for number in range(4_000)])
        await eventually(lambda: len(store.committed) == 1, "the copy was delivered", SECONDS)

    (items,) = store.committed.values()
    assert items == [([place], value) for place, (_, value) in enumerate(doubled(4_000))]
    assert copied_hashes(database_url) == output_hashes(database_url)


async def test_a_transform_that_raises_parks_the_envelope_with_its_text(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    worker = start_worker(daemon, "rules:raising")
    async with serving(daemon, "store_1", Keeps()):
        await registered(worker)
        for number in (20, 200):  # by the ordinary path, and handed over
            envelope_id = await emit(daemon, [order(n) for n in range(number)])
            await told(daemon, "KeyError: 'no such airline'", "parked", "show", envelope_id)


async def test_a_job_goes_on_while_the_broker_starts_anew(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, gate: Path
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    worker = start_worker(daemon, "rules:slow")
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        envelope_id = await emit(daemon, [order(number) for number in range(20_000)])
        await told(daemon, "%", "recipient", "list")
        await eventually(lambda: at_work(gate), "items are worked on", SECONDS)
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        gate.touch()
        await eventually(lambda: envelope_id in store.committed, "it was delivered", SECONDS)

    assert [value["id"] for _, value in store.committed[envelope_id]] == list(range(20_000))
    assert daemon.log.count("output_begun") == 1


async def test_the_job_of_an_envelope_that_is_dropped_is_ended(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, gate: Path
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    worker = start_worker(daemon, "rules:slow")
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        dropped = await emit(daemon, [order(number) for number in range(20_000)])
        await eventually(lambda: at_work(gate), "items are worked on", SECONDS)
        await told(daemon, "%", "recipient", "list")
    await detached(daemon)
    await eventually(lambda: "output_cancelled" in worker.text, "the worker gives it up", SECONDS)
    await eventually(lambda: not any(map(psutil.pid_exists, at_work(gate))), "the job was ended", SECONDS)
    await xbus(daemon, "recipient", "attach", "store_1")
    gate.touch()
    async with serving(daemon, "store_1", store):
        after = await emit(daemon, [order(number) for number in range(60)])
        await eventually(lambda: after in store.committed, "the next one was delivered", SECONDS)
    assert dropped not in store.committed


async def test_another_worker_takes_over_from_one_that_was_killed(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, gate: Path
) -> None:
    add_bus(sqlite_url, GRAPH, roles={"spark": 2})
    daemon = start_daemon(sqlite_url, options={"back": {"bulk_lease": 5, "attempts": 100}})
    first = start_worker(daemon, "rules:slow")
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(first)
        envelope_id = await emit(daemon, [order(number) for number in range(2_000)])
        await eventually(lambda: at_work(gate), "items are worked on", SECONDS)
        second = start_worker(daemon, "rules:slow", login="spark_2")
        await registered(second)
        first.kill()
        gate.touch()
        await eventually(lambda: envelope_id in store.committed, "it was delivered", SECONDS)

    assert [value["id"] for _, value in store.committed[envelope_id]] == list(range(2_000))


async def test_a_transform_that_never_returns_does_not_keep_the_worker_from_ending(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, gate: Path
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    async with serving(daemon, "store_1", Keeps()):
        worker = start_worker(daemon, "rules:stuck")
        await registered(worker)
        for number in (60, 20):  # handed over, and by the ordinary path
            await emit(daemon, [order(n) for n in range(number)])
        await eventually(lambda: at_work(gate).count(worker.pid) == 2, "both are worked on", SECONDS)
        assert await asyncio.to_thread(worker.stop, SECONDS) == 0

        worker = start_worker(daemon, "rules:stuck")
        await registered(worker)
        await eventually(lambda: worker.pid in at_work(gate), "one came again", SECONDS)
        worker.signal(signal.SIGTERM)
        await eventually(lambda: "told_to_stop" in worker.text, "it was heard", SECONDS)
        await eventually(lambda: signalled(worker), "it has ended", SECONDS)
        assert worker.wait() == -signal.SIGTERM


async def test_a_cluster_that_is_away_is_waited_for(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    worker = start_worker(daemon, "rules:double", "--master", "spark://127.0.0.1:1")

    await eventually(lambda: worker.text.count("cluster_unreachable") >= 2, "it was tried twice", SECONDS)

    await told(daemon, "absent", "recipient", "list")
    assert worker.stop(SECONDS) == 0


@pytest.mark.cluster
async def test_on_a_cluster_it_leaves_the_bus_while_the_cluster_is_gone(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, tmp_path: Path
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url)
    conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=2", "--patience", "20")
    cluster = Cluster(tmp_path / "cluster")
    worker = start_worker(daemon, "rules:double", "--master", cluster.url, *conf)
    store = Keeps()
    async with serving(daemon, "store_1", store):
        async with running(cluster):
            await registered(worker)
            large = await emit(daemon, [order(number) for number in range(300)])
            small = await emit(daemon, [order(number) for number in range(20)])
            await eventually(lambda: {large, small} <= set(store.committed), "both were delivered", SECONDS)
        await eventually(lambda: "cluster_gone" in worker.text, "it noticed", SECONDS)
        await told(daemon, "absent", "recipient", "list")
        waiting = await emit(daemon, [order(number) for number in range(300)])
        async with running(cluster):
            await registered(worker, times=2)
            await eventually(lambda: waiting in store.committed, "what waited was delivered", SECONDS)

    assert store.committed[large] == store.committed[waiting] == doubled(300)
    assert store.committed[small] == doubled(20)


@pytest.mark.cluster
async def test_a_job_survives_an_executor_that_is_killed(
    database_url: str,
    start_daemon: StartDaemon,
    start_worker: StartWorker,
    spark_cluster: Cluster,
    gate: Path,
) -> None:
    add_bus(database_url, GRAPH)
    daemon = start_daemon(database_url)
    conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=2")
    worker = start_worker(daemon, "rules:slow", "--master", spark_cluster.url, *conf)
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        envelope_id = await emit(daemon, [order(number) for number in range(2_000)])
        await eventually(lambda: at_work(gate), "items are worked on", SECONDS)
        found = await answered(lambda: asyncio.to_thread(spark_cluster.executors_with, at_work(gate)), "it is found")
        found[0].kill()
        gate.touch()
        await eventually(lambda: envelope_id in store.committed, "it was delivered", SECONDS)

    assert [value["id"] for _, value in store.committed[envelope_id]] == list(range(2_000))
    assert daemon.log.count("output_begun") == 1
