"""The Spark worker as a program on a real bus: an emitter before it, a consumer behind it."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest

from tests.conftest import StartDaemon, StartProcess
from tests.support.bus import PASSWORD, add_bus
from tests.support.daemon import Daemon
from tests.support.processes import Process, run, script
from tests.support.spark import Cluster
from tests.support.spark import environment as spark_environment
from tests.support.waiting import eventually
from xbus.emitter import Emitter
from xbus.recipient import Consumer, Envelope, Event, Item, Recipient, serve

GRAPH = {"orders": {"spark": ["store"], "store": []}}
SCHEMA = "id INT, code STRING"
SECONDS = 120.0

RULES = """
import os, time
from pyspark.sql import functions as sf


def double(items, context):
    return items.where("id % 2 = 0").withColumn("twice", sf.col("id") * 2)


def slow(items, context):
    def wait(number):
        if not os.path.exists({gate!r}):
            open({gate!r} + "." + str(os.getpid()), "w").close()
            time.sleep(0.05)
        return number
    return items.withColumn("id", sf.udf(wait, "int", useArrow=False)("id"))


def raising(items, context):
    raise KeyError("no such airline")


def stuck(items, context):
    open({gate!r} + "." + str(context.event_id) + "." + str(os.getpid()), "w").close()
    time.sleep(3600)
"""

StartWorker: TypeAlias = Callable[..., Process]


class Keeps(Consumer):
    """Keeps what was committed, by envelope, in the order in which it came."""

    def __init__(self) -> None:
        self.committed: dict[str, list[tuple[list[int], Any]]] = {}

    def on_event_start(self, event: Event) -> None:
        event.envelope.state.setdefault("items", [])

    def on_item(self, event: Event, item: Item) -> None:
        event.envelope.state["items"].append((item.indices, json.loads(item.data)))

    def commit(self, envelope: Envelope) -> None:
        assert envelope.id not in self.committed
        self.committed[envelope.id] = envelope.state["items"]


@asynccontextmanager
async def serving(daemon: Daemon, login: str, recipient: Recipient) -> AsyncIterator[None]:
    stop = asyncio.Event()
    options: Any = {"heartbeat_seconds": 0.2, "stop_timeout": 1}
    task = asyncio.create_task(serve(recipient, daemon.back, login, PASSWORD, stop, **options))
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(task)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for which the transform ``slow`` waits."""
    return tmp_path / "gate"


@pytest.fixture
def start_worker(start_process: StartProcess, tmp_path: Path, gate: Path) -> StartWorker:
    """Starts a worker of role spark_1, and waits until it is registered."""
    (tmp_path / "rules.py").write_text(RULES.format(gate=str(gate)))

    def start(daemon: Daemon, transform: str = "rules:double", *more: str, login: str = "spark_1") -> Process:
        return start_process(
            *(script("xbus-spark-worker"), "-c", daemon.config, "--login", login, "--back", daemon.back),
            *(
                "--transform",
                transform,
                "--format",
                "json",
                "--schema",
                SCHEMA,
                "--master",
                "local[2]",
                "--min-items",
                "50",
            ),
            *("--conf", "spark.driver.memory=512m", *more),
            cwd=tmp_path,
            env={**spark_environment(), "XBUS_PASSWORD": PASSWORD},
        )

    return start


async def registered(process: Process, times: int = 1) -> None:
    there = lambda: process.text.count("recipient_registered") >= times or not process.runs  # noqa: E731
    await eventually(there, "the worker is registered", SECONDS)
    assert process.runs, process.text


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[None]:
    """A cluster inside the block; recipients of this process are served while it starts and ends."""
    await asyncio.to_thread(cluster.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.kill)


def at_work(gate: Path) -> list[int]:
    """The processes that have worked on items in the transform ``slow``."""
    return [int(path.name.rpartition(".")[2]) for path in gate.parent.glob(f"{gate.name}.*")]


def order(number: int) -> bytes:
    return json.dumps({"id": number, "code": f"c{number}"}).encode()


async def emit(daemon: Daemon, items: list[bytes]) -> str:
    def in_thread() -> str:
        with Emitter(daemon.front, "emitter_1", PASSWORD) as emitter:
            return emitter.put("orders", items).envelope_id

    return await asyncio.to_thread(in_thread)


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


def xbus(daemon: Daemon, *arguments: str) -> str:
    """What a command of ``xbus`` prints."""
    ran = run(script("xbus"), *arguments, "-c", daemon.config)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


async def told(daemon: Daemon, text: str, *arguments: str) -> None:
    """Wait until a command of ``xbus`` prints a text; before that it may find nothing to print."""
    command: list[str | Path] = [script("xbus"), *arguments, "-c", daemon.config]
    async with asyncio.timeout(SECONDS):
        while text not in (await asyncio.to_thread(run, *command)).stdout:
            await asyncio.sleep(0.2)  # a turn between two looks; the time-out above is what fails


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
        daemon.start()
        gate.touch()
        await eventually(lambda: envelope_id in store.committed, "it was delivered", SECONDS)

    assert [value["id"] for _, value in store.committed[envelope_id]] == list(range(20_000))
    assert daemon.log.count("output_begun") == 1


async def test_the_job_of_an_envelope_that_is_dropped_is_ended(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, gate: Path
) -> None:
    add_bus(sqlite_url, GRAPH)
    daemon = start_daemon(sqlite_url, options={"back": {"bulk_lease": 3}})
    worker = start_worker(daemon, "rules:slow")
    store = Keeps()
    async with serving(daemon, "store_1", store):
        await registered(worker)
        dropped = await emit(daemon, [order(number) for number in range(20_000)])
        await eventually(lambda: at_work(gate), "items are worked on", SECONDS)
        await told(daemon, "%", "recipient", "list")
    # Only a role that nobody serves can be detached.
    xbus(daemon, "recipient", "detach", "store_1", "--yes", "--reason", "a test")
    await eventually(lambda: "output_cancelled" in worker.text, "the worker gives it up", SECONDS)
    await eventually(lambda: not any(map(psutil.pid_exists, at_work(gate))), "the job was ended", SECONDS)
    xbus(daemon, "recipient", "attach", "store_1")
    async with serving(daemon, "store_1", store):
        after = await emit(daemon, [order(number) for number in range(60)])
        await eventually(lambda: after in store.committed, "the next one was delivered", SECONDS)
    assert dropped not in store.committed


async def test_another_worker_takes_over_from_one_that_was_killed(
    sqlite_url: str, start_daemon: StartDaemon, start_worker: StartWorker, gate: Path
) -> None:
    add_bus(sqlite_url, GRAPH, roles={"spark": 2})
    daemon = start_daemon(sqlite_url, options={"back": {"bulk_lease": 5}})
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
        assert await asyncio.to_thread(worker.stop, SECONDS) == -signal.SIGTERM


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
    conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=2", "--patience", "5")
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
        spark_cluster.executors()[0].kill()
        gate.touch()
        await eventually(lambda: envelope_id in store.committed, "it was delivered", SECONDS)

    assert [value["id"] for _, value in store.committed[envelope_id]] == list(range(2_000))
    assert daemon.log.count("output_begun") == 1
